"""A start moves a checkpoint forward by the one batch that the last run had noted, and never backwards."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from notes import add_note
from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.engine.gateway import classic_of
from tailrace.kafka.broker import Broker
from tailrace.kafka.records import read_records

pytestmark = pytest.mark.usefixtures("spark")

FIRST, SENT = 6, 20
"""How many records of each partition are in the first batch, and how many there are."""
NOTED = "the note of the last run"


class Checkpoint:
    """A copy of the checkpoint of a query that Spark alone has run for a batch."""

    def __init__(self, spark: SparkSession, folder: Path, topic: str) -> None:
        self.spark, self.folder, self.topic = spark, folder, topic
        self.query = json.loads((folder / "metadata").read_text())["id"]
        self.metadata = json.loads((folder / "offsets" / "0").read_text().splitlines()[1])

    def at(self, first: int, second: int) -> str:
        """Offsets of the topic's two partitions."""
        return json.dumps({self.topic: {"0": first, "1": second}})

    def metadata_of(self, batch: int, more_ms: int = 0) -> str:
        """What Spark logs with the offsets of a batch."""
        return json.dumps(
            {**self.metadata, "batchTimestampMs": self.metadata["batchTimestampMs"] + 1000 * batch + more_ms}
        )

    def note(self, batch: int, positions: Sequence[str], **more: Any) -> None:
        """Write a note of a real-time batch that began at the first one's end; `more` replaces parts of it."""
        add_note(self.folder, json.dumps(self.entry(batch, positions) | more))

    def entry(self, batch: int, positions: Sequence[str]) -> dict[str, Any]:
        return {
            "version": 1,
            "query": self.query,
            "batch": batch,
            "isRealTime": True,
            "isClosed": False,
            "base": [self.at(FIRST, FIRST)],
            "positions": list(positions),
            "ends": ends(30),
            "begun": {str(batch): ends(20), str(batch - 1): ends(10)},
            "metadata": self.metadata_of(batch),
            "fingerprint": "f",
        }

    def log(self, batch: int, offsets: Sequence[str], metadata: str, *, commit: bool = False) -> None:
        """Write Spark's logs of a batch."""
        (self.folder / "offsets" / str(batch)).write_text("\n".join(["v1", metadata, *offsets]))
        if commit:
            shutil.copy(self.folder / "commits" / "0", self.folder / "commits" / str(batch))

    def logs(self) -> tuple[list[str], list[str]]:
        def names(log: str) -> list[str]:
            folder = self.folder / log
            return sorted(file.name for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []

        return names("offsets"), names("commits")

    def resume(self) -> "Left":
        resumed = engine.resume(self.spark, str(self.folder))
        of_topics = resumed.jvm.ends()
        known = None
        if of_topics.isDefined():
            notes: Any = self.spark._jvm
            json_of = notes.org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets
            known = str(json_of(of_topics.get()))
        return Left(resumed, known)

    def next_offsets(self) -> Any:
        """Where Spark continues, as its own class reads it."""
        jvm: Any = self.spark._jvm
        log = jvm.org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog(
            classic_of(self.spark), str(self.folder / "offsets"), True
        )
        latest = log.getLatest().get()._2()
        return [json.loads(latest.offsets().apply(each).get().json()) for each in range(latest.offsets().size())]


@dataclass(frozen=True)
class Left:
    """What a start finds."""

    resumed: engine.Resumed
    ends: str | None

    @property
    def facts(self) -> tuple[int, str, str | None]:
        return self.resumed.advanced, self.resumed.unused, self.ends and str(json.loads(self.ends)["out"]["0"])


def ends(offset: int) -> str:
    return json.dumps({"out": {"0": offset}})


def run_by_spark(spark: SparkSession, kafka: Kafka, source: str, sink: str, checkpoint: Path, **more: str) -> None:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    read = {"subscribe": source, "startingOffsets": "earliest", **more}
    records = spark.readStream.format("kafka").options(**servers, **read).load()
    writer = records.select("value").writeStream.format("kafka").options(**servers, topic=sink)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)


@pytest.fixture(scope="module")
def topics(broker: Broker) -> tuple[str, str]:
    kafka = Kafka(broker.bootstrap_servers)
    return kafka.topic("resumed", 2), kafka.topic("resumed-out", 1)


@pytest.fixture(scope="module")
def first(
    spark: SparkSession, broker: Broker, topics: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A checkpoint after one batch; more records have come since."""
    folder, kafka = tmp_path_factory.mktemp("resumed") / "checkpoint", Kafka(broker.bootstrap_servers)
    kafka.send_to_every_partition(topics[0], [{"n": number} for number in range(2 * FIRST)])
    run_by_spark(spark, kafka, *topics, folder)
    kafka.send_to_every_partition(topics[0], [{"n": number} for number in range(2 * FIRST, 2 * SENT)])
    return folder


@pytest.fixture
def checkpoint(spark: SparkSession, first: Path, topics: tuple[str, str], tmp_path: Path) -> Checkpoint:
    shutil.copytree(first, tmp_path / "checkpoint")
    return Checkpoint(spark, tmp_path / "checkpoint", topics[0])


@pytest.fixture
def fresh(spark: SparkSession, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint whose first batch is not in the logs."""
    for log in ("offsets", "commits"):
        shutil.rmtree(checkpoint.folder / log)
    return checkpoint


def test_it_moves_by_exactly_one_batch_and_spark_alone_goes_on(
    spark: SparkSession, kafka: Kafka, checkpoint: Checkpoint, topics: tuple[str, str]
) -> None:
    checkpoint.note(1, [checkpoint.at(10, 8)])
    assert checkpoint.resume().facts == (6, "", "30")
    assert checkpoint.logs() == (["0", "1"], ["0", "1"])
    assert checkpoint.next_offsets() == [json.loads(checkpoint.at(10, 8))]
    assert checkpoint.resume().facts == (0, "", "30"), "not twice"
    assert checkpoint.logs() == (["0", "1"], ["0", "1"])
    rest = kafka.topic("rest", 1)
    run_by_spark(spark, kafka, topics[0], rest, checkpoint.folder)
    written = [json.loads(record.value or b"")["n"] for record in read_records(kafka.config, rest)]
    assert sorted(written) == sorted(2 * at + each for each, start in ((0, 10), (1, 8)) for at in range(start, SENT))


def test_a_checkpoint_without_a_note_stays(checkpoint: Checkpoint) -> None:
    left = checkpoint.resume()
    assert left.facts == (0, "", None)
    assert not left.resumed.is_fresh
    assert checkpoint.logs() == (["0"], ["0"])


def test_a_note_of_the_batchs_beginning_moves_nothing(checkpoint: Checkpoint) -> None:
    for metadata in (checkpoint.metadata_of(1), ""):
        checkpoint.note(1, [checkpoint.at(FIRST, FIRST)], metadata=metadata)
        assert checkpoint.resume().facts == (0, "", "30")
        assert checkpoint.logs() == (["0"], ["0"])


def test_a_batch_that_lacks_only_its_commit_gets_it(checkpoint: Checkpoint) -> None:
    checkpoint.note(1, [checkpoint.at(10, 8)])
    checkpoint.log(1, [checkpoint.at(12, 9)], checkpoint.metadata_of(1))
    assert checkpoint.resume().facts == (6, "", "30")
    assert checkpoint.logs() == (["0", "1"], ["0", "1"])
    assert checkpoint.next_offsets() == [json.loads(checkpoint.at(12, 9))]


def test_a_batch_that_another_run_has_begun_since_is_not_taken_for_the_noted_one(checkpoint: Checkpoint) -> None:
    """Spark alone, in micro-batch, logs the end of a batch before it writes anything."""
    checkpoint.note(1, [checkpoint.at(10, 8)])
    checkpoint.log(1, [checkpoint.at(SENT, SENT)], checkpoint.metadata_of(1, more_ms=1))
    assert checkpoint.resume().facts == (0, "another run has begun batch 1 since", "20")
    assert checkpoint.logs() == (["0", "1"], ["0"])


def test_the_open_batch_of_a_micro_batch_stays(checkpoint: Checkpoint) -> None:
    checkpoint.note(1, [checkpoint.at(FIRST, FIRST)], isRealTime=False)
    checkpoint.log(1, [checkpoint.at(SENT, SENT)], checkpoint.metadata_of(1))
    assert checkpoint.resume().facts == (0, "", "30")
    assert checkpoint.logs() == (["0", "1"], ["0"])


@pytest.mark.parametrize(("base", "known"), [((5, 6), "20"), ((7, 6), None)], ids=["before", "behind"])
def test_a_batch_that_began_elsewhere(checkpoint: Checkpoint, base: tuple[int, int], known: str | None) -> None:
    """What is known of the outputs holds for records from its beginning on."""
    checkpoint.note(1, [checkpoint.at(10, 8)], base=[checkpoint.at(*base)])
    why = "batch 0 in the checkpoint does not end where the noted batch began"
    assert checkpoint.resume().facts == (0, why, known)
    assert checkpoint.logs() == (["0"], ["0"])


def test_a_note_two_batches_ahead(checkpoint: Checkpoint) -> None:
    checkpoint.note(2, [checkpoint.at(10, 8)])
    why = f"the checkpoint ends with batch 0, and {NOTED} is about batch 2"
    assert checkpoint.resume().facts == (0, why, "10")
    checkpoint.note(4, [checkpoint.at(10, 8)])
    assert checkpoint.resume().facts[2] is None


@pytest.mark.parametrize(
    ("saved", "known"), [((10, 8), "30"), ((12, 9), "30"), ((10, 7), "20"), ((6, 6), "20"), ((5, 6), None)]
)
def test_a_note_of_a_committed_batch(checkpoint: Checkpoint, saved: tuple[int, int], known: str | None) -> None:
    """Another program may have finished the batch, at another place."""
    checkpoint.note(1, [checkpoint.at(10, 8)])
    checkpoint.log(1, [checkpoint.at(*saved)], checkpoint.metadata_of(1), commit=True)
    assert checkpoint.resume().facts == (0, "", known)
    assert checkpoint.logs() == (["0", "1"], ["0", "1"])


def test_a_run_that_had_saved_everything_leaves_nothing_open(checkpoint: Checkpoint) -> None:
    checkpoint.note(0, [checkpoint.at(FIRST, FIRST)], isClosed=True)
    assert checkpoint.resume().resumed.is_closed
    checkpoint.log(1, [checkpoint.at(SENT, SENT)], checkpoint.metadata_of(1))
    assert not checkpoint.resume().resumed.is_closed, "another program has begun a batch since"
    checkpoint.log(1, [checkpoint.at(SENT, SENT)], checkpoint.metadata_of(1), commit=True)
    assert not checkpoint.resume().resumed.is_closed


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"version": 1}', "{}", "\0" * 100],
    ids=["empty", "torn", "null", "list", "short", "none", "zeros"],
)
def test_a_note_that_cannot_be_read_is_no_obstacle(checkpoint: Checkpoint, text: str) -> None:
    checkpoint.note(1, [checkpoint.at(10, 8)])
    good: Any = notes(checkpoint).last().get().value()
    add_note(checkpoint.folder, text)
    advanced, why, known = checkpoint.resume().facts
    assert (advanced, known) == (0, None)
    assert NOTED in why
    assert checkpoint.logs() == (["0"], ["0"])
    notes(checkpoint).write(good)
    assert checkpoint.resume().facts == (6, "", "30"), "the next run's note is read again"


def notes(checkpoint: Checkpoint) -> Any:
    jvm: Any = checkpoint.spark._jvm
    spark = classic_of(checkpoint.spark)
    return jvm.org.apache.spark.sql.kafka010.tailrace.ProgressNotes(spark, str(checkpoint.folder))


def test_a_note_of_another_version_and_one_of_another_query(checkpoint: Checkpoint) -> None:
    checkpoint.note(1, [checkpoint.at(10, 8)], version=2)
    assert checkpoint.resume().facts == (0, f"another version of Tailrace has written {NOTED}", None)
    checkpoint.note(1, [checkpoint.at(10, 8)], query="other")
    assert checkpoint.resume().facts == (0, "", None)
    assert checkpoint.logs() == (["0"], ["0"])


def test_the_first_batch(spark: SparkSession, kafka: Kafka, fresh: Checkpoint, topics: tuple[str, str]) -> None:
    fresh.note(0, [fresh.at(10, 8)], base=[fresh.at(0, 0)])
    assert fresh.resume().facts == (18, "", "30")
    assert fresh.logs() == (["0"], ["0"])
    assert (fresh.folder / "commits" / "0").read_text().startswith("v2")
    rest = kafka.topic("rest", 1)
    run_by_spark(spark, kafka, topics[0], rest, fresh.folder)
    assert len(list(read_records(kafka.config, rest))) == 2 * SENT - 18


def test_a_first_batch_that_had_not_begun(fresh: Checkpoint) -> None:
    fresh.note(0, [fresh.at(0, 0)], base=[fresh.at(0, 0)], metadata="")
    assert fresh.resume().facts == (0, "", "30")
    assert fresh.logs() == ([], [])


def test_a_first_batch_without_a_note_may_have_written_something(fresh: Checkpoint) -> None:
    """As a version without notes leaves it in real time."""
    left = fresh.resume()
    assert left.facts == (0, "", None)
    assert not left.resumed.is_fresh


def test_a_new_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    left = engine.resume(spark, str(tmp_path / "none"))
    assert left.is_fresh
    assert not left.knows_results


def test_several_sources(checkpoint: Checkpoint) -> None:
    starts, positions = [checkpoint.at(6, 6), checkpoint.at(3, 4)], [checkpoint.at(6, 7), checkpoint.at(9, 4)]
    checkpoint.log(0, starts, checkpoint.metadata_of(0))
    checkpoint.note(1, positions[:1])
    assert checkpoint.resume().facts[:2] == (0, "batch 0 in the checkpoint does not end where the noted batch began")
    checkpoint.note(1, positions, base=starts)
    assert checkpoint.resume().facts == (7, "", "30")
    assert checkpoint.next_offsets() == [json.loads(each) for each in positions]


def test_new_partitions_move_and_nothing_moves_backwards(checkpoint: Checkpoint) -> None:
    checkpoint.note(1, [checkpoint.at(10, 5)])
    assert checkpoint.resume().facts == (0, "a topic was created again in the noted batch", "20")
    assert checkpoint.logs() == (["0"], ["0"])
    wider: Mapping[str, Any] = {checkpoint.topic: {"0": 7, "1": 6, "2": 4}}
    checkpoint.note(1, [json.dumps(wider)])
    assert checkpoint.resume().facts == (1, "", "30")
    assert checkpoint.next_offsets() == [wider]


def test_a_log_that_is_ahead_of_the_note(checkpoint: Checkpoint) -> None:
    checkpoint.note(1, [checkpoint.at(10, 8)])
    checkpoint.log(2, [checkpoint.at(SENT, SENT)], checkpoint.metadata_of(2))
    assert checkpoint.resume().facts == (
        0,
        "its log of offsets is at batch 2 already, and the note is about batch 1",
        "20",
    )
