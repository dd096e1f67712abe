"""Records that are gone before a query has read them: topics that are created again, topics that delete records.

`make soak-watch` takes all combinations of the parameters; see `combined.py` for those of `make test`.
"""

import json
import logging
import secrets
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from combined import ALL, MODES, combined
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Kafka, wait_until
from copies import Copy, numbers
from figures import note
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tailrace as tr
from tailrace.errors import DataLost, TopicMissing
from tailrace.kafka import server_files
from tailrace.kafka.client import plain_client
from tailrace.kafka.records import read_records
from tailrace.kafka.restartable_broker import RestartableBroker
from tailrace.kafka.topics import create_topic, delete_topics, list_topics
from tailrace.running import topic_watch
from tailrace.running.topic_watch import ADOPTED

pytestmark = pytest.mark.usefixtures("spark")

OLD = [{"a": number} for number in range(20)]
"""What is read before the topic is created again: ten records in each partition."""


def new_records(count: int) -> list[dict[str, int]]:
    return [{"a": 1000 + number} for number in range(count)]


def recreate(kafka: Kafka, topic: str, partitions: int = 2) -> None:
    delete_topics(kafka.config, [topic])
    wait_until(lambda: topic not in list_topics(kafka.config), 20, "the topic is deleted")
    create_topic(kafka.config, topic, partitions)


def delete_until(kafka: Kafka, topic: str, offset: int) -> None:
    admin = AdminClient(kafka.config)  # held by name: its answers die with it
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    deleted.result(20)


def copying(copy: Copy, topic: str, **options: str) -> DataStreamWriter:
    return copy.writer(copy.read(subscribe=topic, startingOffsets="earliest", **options))


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    """What was logged with these words."""
    return [each.message for each in caplog.records if words in each.message]


def note_within_limit(what: str, began: float) -> None:
    """Note how long it took, from before the change on: at most 15 s, on a busy machine too."""
    note("watch", what, time.monotonic() - began)
    assert time.monotonic() - began < 15


def has_new(copy: Copy, count: int) -> bool:
    """Whether every record of the new topic has been written."""
    return set(numbers(copy.written())) >= {each["a"] for each in new_records(count)}


COUNTS = {"fewer": 6, "equally many": 20, "more": 60}
"""Records of the new topic: fewer, as many, or more than the checkpoint's offsets."""


class TestATopicThatIsCreatedAgain:
    """Each number of records in each mode: between two runs, or while the query runs."""

    @pytest.mark.parametrize(("records", "mode"), combined(list(COUNTS), MODES))
    def test_between_two_runs(self, copy: Copy, kafka: Kafka, mode: str, records: str) -> None:
        count = COUNTS[records]
        topic = kafka.topic("in")
        kafka.send_to_every_partition(topic, OLD)
        writer = copying(copy, topic)
        copy.run_once(writer, mode)
        recreate(kafka, topic)
        kafka.send_to_every_partition(topic, new_records(count))
        assert tr.check(writer, mode, checkpoint=copy.folder / "checkpoint").errors == {"DATA_LOST"}
        with pytest.raises(DataLost, match=f"topic '{topic}' was deleted and created again") as refused:
            copy.run_once(writer, mode)
        assert "10 in partition 0, 10 in partition 1" in refused.value.why
        assert "--on-data-loss warn" in refused.value.fix
        assert numbers(copy.written()) == Counter(range(20))
        copy.run_once(writer, mode, on_data_loss="warn")
        copy.run_once(writer, mode)  # the new topic is the query's topic now
        assert numbers(copy.written()) == Counter([*range(20), *(each["a"] for each in new_records(count))])

    @pytest.mark.parametrize(("records", "mode"), combined(list(COUNTS), MODES, odd=True))
    def test_while_the_query_runs(self, copy: Copy, kafka: Kafka, mode: str, records: str) -> None:
        count = COUNTS[records]
        topic = kafka.topic("in")
        kafka.send_to_every_partition(topic, OLD)
        writer = copying(copy, topic)
        running = copy.start(writer, mode)
        wait_until(lambda: len(copy.written()) == 20, 60, "the records of the old topic")
        running.checkpoint()
        began = time.monotonic()
        recreate(kafka, topic)
        kafka.send_to_every_partition(topic, new_records(count))
        with pytest.raises(DataLost, match=f"topic '{topic}' was deleted and created again"):
            running.wait(60)
        note_within_limit(f"a topic that was created again is named, {mode}", began)
        copy.run_once(writer, mode, on_data_loss="warn")
        assert has_new(copy, count)


@pytest.mark.parametrize("count", [6, 90], ids=["fewer", "more"])
def test_a_query_continues_in_the_new_topic(
    copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    writer = copying(copy, topic)
    with caplog.at_level(logging.WARNING, "tailrace"):
        running = copy.start(writer, mode, on_data_loss="warn")
        wait_until(lambda: len(copy.written()) == 20, 60, "the records of the old topic")
        began = time.monotonic()
        recreate(kafka, topic, partitions=3)
        kafka.send_to_every_partition(topic, new_records(count))
        wait_until(lambda: has_new(copy, count), 60, "the records of the new topic")
        note_within_limit(f"a topic that was created again is read, {mode}", began)
        kafka.send_to_every_partition(topic, [{"a": 5000}])
        wait_until(lambda: 5000 in numbers(copy.written()), 60, "a later record")
        assert running.stop().repeats == ""
    *_, sentence = warnings(caplog, "created again")  # on a busy machine one before says that it was noticed
    assert f"topic '{topic}' was deleted and created again; continuing at the beginning" in sentence
    before = len(copy.written())
    copy.run_once(writer, mode)
    assert len(copy.written()) == before


def test_a_crash_after_the_change_reads_the_new_topic_from_its_beginning(copy: Copy, kafka: Kafka, mode: str) -> None:
    """The checkpoint still has the offsets of the old topic, and the record of its ids has the new one."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    copy.run_once(copying(copy, topic), mode)
    recreate(kafka, topic)
    kafka.send_to_every_partition(topic, new_records(60))
    rows = copy.read(subscribe=topic, startingOffsets="earliest")
    slow = rows.where(F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(1000).cast("long")).isNotNull())
    running = copy.start(copy.writer(slow), mode, on_data_loss="warn")
    wait_until(lambda: len(copy.written()) > 20, 60, "the first of the new records")
    running.stop(0)
    copy.run_once(copying(copy, topic), mode, on_data_loss="warn")
    assert has_new(copy, 60)


@pytest.mark.parametrize(("kept", "mode"), combined([1, 2], MODES))
def test_a_checkpoint_whose_last_batches_are_gone(copy: Copy, kafka: Kafka, mode: str, kept: int) -> None:
    """Its offsets are those of the old topic again: after a crash Spark may lack several batches."""
    topic = kafka.topic("in")
    for _ in range(2):
        kafka.send_to_every_partition(topic, OLD)
        copy.run_once(copying(copy, topic), mode)
    recreate(kafka, topic)
    kafka.send_to_every_partition(topic, new_records(60))
    copy.run_once(copying(copy, topic), mode, on_data_loss="warn")
    logs = [copy.folder / "checkpoint" / log for log in ("offsets", "commits")]
    for log in logs:
        batches = sorted(int(each.name) for each in log.iterdir() if each.name.isdigit())
        first_new = batches[-1] if mode == "microbatch" else next(each for each in batches if each >= 2)
        for batch in batches:
            if batch >= first_new - 2 + kept:
                (log / str(batch)).unlink()
                (log / f".{batch}.crc").unlink(missing_ok=True)
    for other in ("realtime", "microbatch"):
        copy.run_once(copying(copy, topic), other)
    counts = numbers(copy.written())
    assert {counts[each["a"]] for each in new_records(60)} == {2}


def test_one_of_two_sources(copy: Copy, kafka: Kafka, mode: str) -> None:
    topics = [kafka.topic("in"), kafka.topic("in")]
    for number, topic in enumerate(topics):
        kafka.send_to_every_partition(topic, [{"a": number * 100 + each} for each in range(20)])
    rows = [copy.read(subscribe=topic, startingOffsets="earliest") for topic in topics]
    writer = copy.writer(rows[0].union(rows[1]))
    copy.run_once(writer, mode)
    recreate(kafka, topics[1])
    kafka.send_to_every_partition(topics[1], new_records(30))
    with pytest.raises(DataLost, match=topics[1]):
        copy.run_once(writer, mode)
    copy.run_once(writer, mode, on_data_loss="warn")
    copy.run_once(writer, mode)
    assert numbers(copy.written()) == Counter([*range(20), *range(100, 120), *range(1000, 1030)])


@pytest.mark.parametrize("count", [6, 60], ids=["fewer", "more"])
def test_one_of_two_topics_that_one_task_reads(
    copy: Copy, kafka: Kafka, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """The other one is neither read again nor held up for long."""
    stays, goes = kafka.topic("in"), kafka.topic("in")
    writer = copying(copy, f"{stays},{goes}")
    kafka.send_to_every_partition(stays, [{"a": 100 + number} for number in range(20)])
    kafka.send_to_every_partition(goes, OLD)
    with caplog.at_level(logging.WARNING, "tailrace"):
        running = copy.start(writer, "realtime", on_data_loss="warn", tasks=1)
        wait_until(lambda: len(copy.written()) == 40, 60, "the records of both topics")
        began = time.monotonic()
        recreate(kafka, goes)
        kafka.send_to_every_partition(goes, new_records(count))
        kafka.send_to_every_partition(stays, [{"a": 120 + number} for number in range(20)])
        wait_until(lambda: has_new(copy, count), 60, "the records of the new topic")
        note_within_limit("a topic that was created again is read, realtime, one of two topics in a task", began)
        wait_until(lambda: set(numbers(copy.written())) >= set(range(100, 140)), 60, "the records of the other topic")
        assert running.stop().repeats == ""
    (sentence,) = warnings(caplog, "created again")
    assert f"topic '{goes}'" in sentence
    counts = numbers(copy.written())
    assert {counts[each] for each in [*range(20), *range(100, 140)]} == {1}


@pytest.mark.parametrize("on_data_loss", ["fail", "warn"])
def test_a_partition_that_ends_before_the_position(
    copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture, on_data_loss: str
) -> None:
    """As after brokers have lost records. Without the ids a topic that was created again looks like that."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    writer = copying(copy, topic)
    copy.run_once(writer, mode)
    shutil.rmtree(copy.folder / "checkpoint" / "tailrace-topics")
    recreate(kafka, topic)
    kafka.send_to_every_partition(topic, new_records(6))
    if on_data_loss == "fail":
        assert tr.check(writer, mode, checkpoint=copy.folder / "checkpoint").errors == {"DATA_LOST"}
        with pytest.raises(DataLost, match=f"{topic}-0 ends before the query's position") as refused:
            copy.run_once(writer, mode)
        assert "10 and 3" in refused.value.why
    else:
        with caplog.at_level(logging.WARNING, "tailrace"):
            running = copy.start(writer, mode, on_data_loss="warn")
            wait_until(lambda: len(warnings(caplog, "continuing at the end of the partition")) == 2, 30, "it is named")
            kafka.send_to_every_partition(topic, [{"a": 5000}, {"a": 5001}])
            wait_until(lambda: {5000, 5001} <= set(numbers(copy.written())), 60, "later records")
            assert running.stop().repeats == ""
        named = sorted(each.split(": ")[1].split()[0] for each in warnings(caplog, "ends before"))
        assert named == [f"{topic}-0", f"{topic}-1"]
        assert numbers(copy.written()) == Counter([*range(20), 5000, 5001])


def test_a_topic_that_matches_a_pattern_and_comes_back(copy: Copy, kafka: Kafka, mode: str) -> None:
    """While it was away, Spark has forgotten its offsets: the next one is another topic, and nothing is lost."""
    family = f"family-{secrets.token_hex(4)}"
    stays, goes = kafka.topic(f"{family}-a"), kafka.topic(f"{family}-b")
    rows = copy.read(subscribePattern=f"{family}-.*", startingOffsets="earliest", failOnDataLoss="false")
    kafka.send_to_every_partition(stays, OLD)
    kafka.send_to_every_partition(goes, OLD)
    copy.run_once(copy.writer(rows), mode)
    delete_topics(kafka.config, [goes])
    wait_until(lambda: goes not in list_topics(kafka.config), 20, "the topic is deleted")
    kafka.send_to_every_partition(stays, [{"a": 100}, {"a": 101}])
    copy.run_once(copy.writer(rows), mode)
    create_topic(kafka.config, goes, 2)
    kafka.send_to_every_partition(goes, new_records(30))
    copy.run_once(copy.writer(rows), mode)
    copy.run_once(copy.writer(rows), mode, on_data_loss="fail")
    assert numbers(copy.written()) == Counter([*range(20), *range(20), 100, 101, *range(1000, 1030)])


def test_a_micro_batch_that_an_earlier_run_began_on_the_old_topic(copy: Copy, kafka: Kafka) -> None:
    """Its end offsets are in the checkpoint, and mean nothing in the new topic."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    copy.run_once(copying(copy, topic), "microbatch")
    kafka.send_to_every_partition(topic, OLD)
    rows = copy.read(subscribe=topic, startingOffsets="earliest")
    slow = rows.where(F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(1000).cast("long")).isNotNull())
    running = copy.start(copy.writer(slow), "microbatch")
    offsets = copy.folder / "checkpoint" / "offsets"
    wait_until((offsets / "1").exists, 60, "the second batch has begun")
    running.stop(0)
    assert not (copy.folder / "checkpoint" / "commits" / "1").exists()
    recreate(kafka, topic)
    kafka.send_to_every_partition(topic, new_records(60))
    with pytest.raises(DataLost):
        copy.run_once(copying(copy, topic), "microbatch")
    copy.run_once(copying(copy, topic), "microbatch", on_data_loss="warn")
    assert has_new(copy, 60)


DELETED = [
    ("true", None, False, "realtime"),
    ("false", None, True, "microbatch"),
    ("false", "fail", False, "microbatch"),
    ("true", "warn", True, "realtime"),
]
"""Whether the query continues, by the reader's option and the run's, in a mode that has both outcomes here."""


@pytest.mark.parametrize(
    ("option", "on_data_loss", "continues", "mode"),
    [(*each, mode) for *each, here in DELETED for mode in MODES if ALL or mode == here],
)
def test_records_that_kafka_has_deleted(
    copy: Copy, kafka: Kafka, mode: str, option: str, on_data_loss: str | None, continues: bool
) -> None:
    """The run's option wins over the source's."""
    topic = kafka.topic("in", 1)
    writer = copying(copy, topic, failOnDataLoss=option)
    kafka.send(topic, [{"a": number} for number in range(10)])
    copy.run_once(writer, mode)
    kafka.send(topic, [{"a": number} for number in range(10, 30)])
    delete_until(kafka, topic, 20)
    (finding,) = [
        each
        for each in tr.check(writer, mode, checkpoint=copy.folder / "checkpoint", on_data_loss=on_data_loss).findings
        if each.code == "DATA_LOST"
    ]
    assert finding.severity == ("warning" if continues else "error")
    assert f"{topic}-0 has deleted records that the query had not read" in finding.title
    assert "10 to 19" in finding.why
    if continues:
        copy.run_once(writer, mode, on_data_loss=on_data_loss)
        assert numbers(copy.written()) == Counter([*range(10), *range(20, 30)])
    else:
        with pytest.raises(DataLost):
            copy.run_once(writer, mode, on_data_loss=on_data_loss)
        assert numbers(copy.written()) == Counter(range(10))


@pytest.mark.parametrize("on_data_loss", ["fail", "warn"])
def test_records_that_kafka_deletes_while_the_query_runs(
    copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture, on_data_loss: str
) -> None:
    """The first record keeps the query busy until others have come and gone."""
    topic = kafka.topic("in", 1)
    rows = copy.read(subscribe=topic, startingOffsets="earliest").withColumn(
        "first", F.get_json_object(F.col("value").cast("string"), "$.a") == "0"
    )
    sleeps = F.reflect(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(6000).cast("long")).isNotNull()
    kafka.send(topic, [{"a": 0}])
    running = copy.start(copy.writer(rows.where(~F.col("first") | sleeps)), mode, on_data_loss=on_data_loss)
    time.sleep(1.5)  # the query has the first record
    kafka.send(topic, [{"a": number, "filling": "x" * 200_000} for number in range(1, 41)])
    began = time.monotonic()
    delete_until(kafka, topic, 30)
    if on_data_loss == "fail":
        with pytest.raises(DataLost, match=f"{topic}-0") as failed:
            running.wait(60)
        assert "--on-data-loss warn" in failed.value.fix
    else:
        wait_until(lambda: set(numbers(copy.written())) >= {0, *range(30, 41)}, 60, "the records that are left")
        named = f"{topic}-0 has deleted records that the query had not read"
        wait_until(lambda: warnings(caplog, named), 15, "the loss is logged")
    # The query is busy with its first record for most of that time.
    note_within_limit(f"deleted records, {mode}, on_data_loss={on_data_loss}", began)
    running.stop()


@pytest.fixture
def prompt_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the topics that a query writes to as often as at those that it reads."""
    monkeypatch.setattr(topic_watch, "_OUTPUTS_EVERY", 1)


@pytest.mark.usefixtures("prompt_watch")
def test_a_sink_that_is_created_again(copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """No input is lost: it is said, and the query continues."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    writer = copying(copy, topic)
    copy.run_once(writer, mode)
    recreate(kafka, copy.sink, partitions=1)
    with caplog.at_level(logging.WARNING, "tailrace"):
        running = copy.start(writer, mode)
        assert [each.message for each in caplog.records if "which it writes to" in each.message] == [
            (
                f"query '{copy.name}': topic '{copy.sink}', which it writes to, was deleted and created again: "
                "earlier results are gone"
            )
        ]
        caplog.clear()
        recreate(kafka, copy.sink, partitions=1)
        wait_until(
            lambda: any("which it writes to" in each.message for each in caplog.records), 30, "the change is logged"
        )
        kafka.send_to_every_partition(topic, new_records(20))
        wait_until(lambda: has_new(copy, 20), 60, "the results")
        assert running.stop().repeats == ""


@pytest.mark.usefixtures("prompt_watch")
def test_dead_letters_that_are_created_again(
    kafka: Kafka, mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the query runs and between two runs: it is said, and no input is lost."""
    source, sink, letters = (kafka.topic(name, 1) for name in ("in", "out", "letters"))
    pipeline = tr.Pipeline(
        f"letters-{secrets.token_hex(4)}",
        tr.KafkaSource(source, "a long", starting="earliest"),
        lambda rows: rows,
        tr.KafkaSink(sink),
        dead_letters=letters,
    )
    options = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "c"}

    def reports() -> list[str]:
        return [each.message for each in caplog.records if each.levelname == "WARNING"]

    with caplog.at_level(logging.WARNING, "tailrace"), tr.start(pipeline, mode, **options):
        kafka.send(source, [{"a": 1}, b"{"])
        wait_until(lambda: len(list(read_records(kafka.config, letters))) == 1, 60, "the dead letter")
        recreate(kafka, letters, partitions=1)
        wait_until(reports, 30, "the change is logged")
    recreate(kafka, letters, partitions=1)
    with caplog.at_level(logging.WARNING, "tailrace"), tr.start(pipeline, mode, **options):
        kafka.send(source, [b"[", {"a": 2}])
        kafka.receive_count(sink, 2)
        wait_until(lambda: len(list(read_records(kafka.config, letters))) == 1, 60, "the next dead letter")
    (first, second) = reports()
    assert first == second
    assert f"topic '{letters}', which it writes to, was deleted and created again: earlier results are gone" in first


def test_a_checkpoint_without_ids_takes_those_of_its_topics(
    copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, OLD)
    writer = copying(copy, topic)
    copy.run_once(writer, mode)
    (record,) = (copy.folder / "checkpoint" / "tailrace-topics").glob("[0-9]*")
    assert [*json.loads(record.read_text())["sources"][0]] == [topic]
    shutil.rmtree(record.parent)
    with caplog.at_level(logging.WARNING, "tailrace"):
        copy.run_once(writer, mode)
        copy.run_once(writer, mode)
    assert warnings(caplog, ADOPTED) == [f"query '{copy.name}': {ADOPTED}"]
    recreate(kafka, topic)
    with pytest.raises(DataLost):
        copy.run_once(writer, mode)


def notices(caplog: pytest.LogCaptureFixture, topic: str) -> list[str]:
    return [each.message for each in caplog.records if f"topic '{topic}' no longer exists" in each.message]


@pytest.mark.parametrize("on_data_loss", ["fail", "warn"])
def test_a_topic_that_is_deleted_and_not_created_again(
    copy: Copy, kafka: Kafka, mode: str, on_data_loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error names it. Where records may be lost, a real-time batch goes on with the other topics."""
    goes, stays = kafka.topic("in"), kafka.topic("in")
    kafka.send_to_every_partition(goes, OLD)
    kafka.send_to_every_partition(stays, OLD)
    writer = copying(copy, f"{goes},{stays}")
    running = copy.start(writer, mode, on_data_loss=on_data_loss)
    wait_until(lambda: len(copy.written()) == 40, 60, "the records of both")
    delete_topics(kafka.config, [goes])
    began = time.monotonic()
    if mode == "realtime":
        wait_until(lambda: notices(caplog, goes), 30, "the topic is named")
        note(
            "watch", f"a topic that was deleted is named, {mode}, on_data_loss={on_data_loss}", time.monotonic() - began
        )
        assert "fails with its next batch unless it exists again" in notices(caplog, goes)[0]
    if mode == "realtime" and on_data_loss == "warn":
        kafka.send_to_every_partition(stays, new_records(6))
        wait_until(lambda: has_new(copy, 6), 30, "the records of the other topic")
        running.stop()
        assert len(notices(caplog, goes)) == 1
    else:
        with pytest.raises(TopicMissing, match=f"reads a topic that no longer exists: {goes}"):
            running.wait(60)
    assert time.monotonic() - began < 30


def test_a_topic_that_matches_a_pattern_and_is_deleted(
    copy: Copy, kafka: Kafka, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The query goes on with the others, in the next batches too."""
    family = f"family-{secrets.token_hex(4)}"
    stays, goes = kafka.topic(f"{family}-a"), kafka.topic(f"{family}-b")
    kafka.send_to_every_partition(stays, OLD)
    kafka.send_to_every_partition(goes, OLD)
    rows = copy.read(subscribePattern=f"{family}-.*", startingOffsets="earliest")
    with copy.start(copy.writer(rows), mode, on_data_loss="warn") as running:
        wait_until(lambda: len(copy.written()) == 40, 60, "the records of both")
        delete_topics(kafka.config, [goes])
        if mode == "realtime":
            wait_until(lambda: notices(caplog, goes), 30, "the topic is named")
            assert "continues with the others" in notices(caplog, goes)[0]
            running.checkpoint()
        kafka.send_to_every_partition(stays, new_records(6))
        wait_until(lambda: has_new(copy, 6), 30, "the records of the other topic")


@pytest.fixture
def short_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker that was killed start again after 3 s instead of 9: until then its controller takes it for alive."""
    settings = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    more = "".join(f"{name}={value}\n" for name, value in settings.items())
    original = server_files._server_properties
    monkeypatch.setattr(server_files, "_server_properties", lambda *broker: original(*broker) + more)


@pytest.mark.usefixtures("short_sessions")
@pytest.mark.parametrize("on_data_loss", ["fail", "warn"])
def test_records_that_a_broker_without_them_has_replaced(copy: Copy, tmp_path: Path, on_data_loss: str) -> None:
    """It lost its log and has more records by the time the query connects: the offsets say nothing, the epochs do."""
    with RestartableBroker(tmp_path / "broker", print) as broker:
        client = plain_client(broker.bootstrap_servers)
        create_topic(client, "in", 1)
        own = Kafka(broker.bootstrap_servers)
        own.send("in", OLD)
        source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "in", "startingOffsets": "earliest"}
        rows = copy.spark.readStream.format("kafka").options(**source).load()
        running = copy.start(copy.writer(rows), "realtime", on_data_loss=on_data_loss)
        wait_until(lambda: len(copy.written()) == 20, 60, "the records")
        broker.kill()
        (log,) = [each.parent for each in (tmp_path / "broker").rglob("in-0/*.log")]
        for file in log.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        broker.restart()
        own.send("in", new_records(60))
        if on_data_loss == "fail":
            with pytest.raises(DataLost, match="in-0 has other records now") as failed:
                running.wait(60)
            assert "0 to 19" in failed.value.why
        else:
            wait_until(lambda: has_new(copy, 60), 60, "the new records")
            running.stop()
            assert numbers(copy.written()) == Counter([*range(20), *(each["a"] for each in new_records(60))])
