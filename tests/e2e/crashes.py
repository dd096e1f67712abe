"""Pipelines that crash, several at once: the process that runs them is killed with all its children.

The tests start the pipelines again themselves. Both have them from this module, so that they are the same.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from commands import environment
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import kill_marked, marked_processes, wait_until
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.kafka.records import TopicRecord, read_records
from tailrace.kafka.topics import create_topic, log_ends

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

PARTITIONS, TOPICS = 2, 3
"""How many partitions each topic has, and how many topics the results go to."""


def is_malformed(number: int) -> bool:
    return number % 100 == 50


@dataclass(frozen=True)
class Case:
    """A pipeline with a filter, a function that fails for some records, several results per record, and routing.

    Attributes:
        name: Its name.
        source: The topic that it reads.
        prefix: The beginning of the names of its output topics.
        checkpoint: Its folder.
        dropped: Records whose number modulo 10 is this are dropped.
        copies: The most results of a record.
        factor: What the function multiplies by.
        checkpoint_every: The checkpoint interval.
        delivery: The delivery that is asked for.
        mode: The mode in which it crashes.
    """

    name: str
    source: str
    prefix: str
    checkpoint: str
    dropped: int = 3
    copies: int = 5
    factor: int = 2
    checkpoint_every: str = "5m"
    delivery: str | None = None
    mode: str = "realtime"

    @property
    def dead(self) -> str:
        return f"{self.prefix}-dead"

    @property
    def topics(self) -> tuple[str, ...]:
        return (*(f"{self.prefix}-{number}" for number in range(TOPICS)), self.dead)

    def create(self, config: dict[str, Any]) -> None:
        for topic in self.topics:
            create_topic(config, topic, PARTITIONS)

    def pipeline(self) -> tr.Pipeline:
        return tr.Pipeline(
            self.name,
            tr.KafkaSource(self.source, "a long not null", starting="earliest"),
            self._transform(),
            tr.KafkaSink(topic_column="to", key="a"),
            python_errors="dead-letter",
            dead_letters=self.dead,
        )

    def _transform(self) -> Any:
        dropped, copies, factor, prefix = self.dropped, self.copies, self.factor, self.prefix

        def work(number: int) -> int:
            if number % 40 == 8:
                raise ValueError("eight")
            return number * factor

        def transform(records: DataFrame) -> DataFrame:
            kept = records.where(F.col("a") % 10 != dropped).withColumn("b", F.udf(work, "long", useArrow=False)("a"))
            rows = kept.withColumn("copy", F.explode(F.sequence(F.lit(0), F.col("a") % copies)))
            return rows.withColumn("to", F.concat(F.lit(f"{prefix}-"), (F.col("copy") % TOPICS).cast("string")))

        return transform

    def outputs_of(self, record: TopicRecord) -> "Iterator[Output]":
        """What a batch makes of a record."""
        place, value = (record.partition, record.offset), record.value or b""
        try:
            number = json.loads(value)["a"]
        except ValueError:
            yield Output(self.dead, *place, value.decode())
            return
        if number % 10 == self.dropped:
            return
        if number % 40 == 8:
            yield Output(self.dead, *place, value.decode())
            return
        for copy in range(number % self.copies + 1):
            topic = f"{self.prefix}-{copy % TOPICS}"
            yield Output(topic, *place, json.dumps({"b": number * self.factor, "copy": copy}))


class Output(NamedTuple):
    """An output with the record that it is about."""

    topic: str
    partition: int
    offset: int
    value: str


def expected(config: dict[str, Any], case: Case) -> "Counter[Output]":
    """What a batch makes of everything in the source."""
    return Counter(output for record in read_records(config, case.source) for output in case.outputs_of(record))


def written(config: dict[str, Any], case: Case, *, named: bool = True) -> "Counter[Output]":
    """What is in the output topics, results without their key's column.

    Args:
        config: How to reach the broker.
        case: The pipeline.
        named: Whether to count what names its record; otherwise what does not.
    """
    found: Counter[Output] = Counter()
    for topic in case.topics:
        for record in read_records(config, topic):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            value = (record.value or b"").decode()
            if topic != case.dead:
                row = json.loads(value)
                value = json.dumps({"b": row["b"], "copy": row["copy"]})
            if ("tailrace.id" in headers) is named:
                place = int(headers.get("tailrace.partition", -1)), int(headers.get("tailrace.offset", -1))
                found[Output(topic, *place, value)] += 1
    return found


def lost_and_repeated(wanted: "Counter[Output]", found: "Counter[Output]") -> tuple[int, int]:
    """How many outputs are missing, and how many are there too often or should not be."""
    return (wanted - found).total(), (found - wanted).total()


def output_count(config: dict[str, Any], case: Case) -> int:
    """How many records the output topics have had."""
    ends = log_ends(config, dict.fromkeys(case.topics, PARTITIONS))
    return sum(sum(its.values()) for its in ends.values())


def committed(checkpoint: str) -> int:
    """The last committed batch; -1 if there is none."""
    folder = Path(checkpoint) / "commits"
    return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)


def remove_outputs(config: dict[str, Any], topic: str) -> None:
    """Let retention remove everything in a topic."""
    admin = AdminClient(config)  # held by name: its answers die with it
    ends = log_ends(config, {topic: PARTITIONS})[topic]
    for each in admin.delete_records([TopicPartition(topic, int(at), end) for at, end in ends.items()]).values():
        each.result(20)


class Crashing:
    """Pipelines in a process of their own, which is killed."""

    def __init__(self, folder: Path, servers: str, cases: Sequence[Case], late: Case | None = None) -> None:
        """Take the pipelines, and one that starts only after `go`."""
        self.folder = folder / f"crash-{secrets.token_hex(4)}"
        self.folder.mkdir()
        self._cases, self._mark = cases, f"tailrace-test-{secrets.token_hex(8)}"
        given = [asdict(case) for case in (*cases, *([late] if late else []))]
        self._given = {"servers": servers, "cases": given, "early": len(cases)}

    def go(self) -> None:
        """Let the last pipeline start."""
        (self.folder / "go").touch()

    def has_started(self, case: Case) -> bool:
        return (self.folder / case.name).exists()

    @contextmanager
    def running(self) -> Iterator[None]:
        """All its pipelines run; afterwards none of its processes does."""
        program = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import crashes; crashes.main()"
        log = self.folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", program, str(self.folder), json.dumps(self._given)],
                env=environment({"TAILRACE_TEST_MARK": self._mark}),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                for case in self._cases:
                    wait_until(lambda case=case: self.has_started(case) or process.poll() is not None, 90, case.name)
                    assert process.poll() is None, log.read_text()
                yield
                assert process.poll() is None, log.read_text()
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                while marked_processes(self._mark):  # the workers have groups of their own
                    kill_marked(self._mark)
                process.wait()


def main() -> None:
    """Start the pipelines one after the other, and run until the end comes."""
    folder, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    cases = [Case(**each) for each in given["cases"]]
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
    for number, case in enumerate(cases):
        while number >= given["early"] and not (folder / "go").exists():
            time.sleep(0.05)
        tr.start(
            case.pipeline(),
            case.mode,  # type: ignore[arg-type]
            bootstrap_servers=given["servers"],
            checkpoint=case.checkpoint,
            checkpoint_every=case.checkpoint_every,
            delivery=case.delivery,  # type: ignore[arg-type]
            tasks=1,
            master=f"local[{len(cases) + 4}]",
            conf=conf,
        )
        (folder / case.name).touch()
    time.sleep(600)
