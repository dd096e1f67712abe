"""A stop saves what was read: over many stops under load no record is lost and none is written twice.

``TAILRACE_RESTARTS`` sets the number of stops; `make soak-stops` uses twenty and saves how long they took.
"""

import json
import os
import secrets
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from figures import note, note_records
from load import Load
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.kafka.records import read_records

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

RESTARTS = int(os.environ.get("TAILRACE_RESTARTS", "3"))
SOAK = RESTARTS > 3
KEYS = 7
PLACE = ", two workers" if "TAILRACE_TEST_MASTER" in os.environ else ""


def plain(records: DataFrame) -> DataFrame:
    return records.where("a >= 0")


def counted(records: DataFrame) -> DataFrame:
    return records.groupBy((F.col("a") % KEYS).alias("key")).count()


def by_udf(records: DataFrame) -> DataFrame:
    @F.udf("long")
    def twice(value):  # type: ignore[no-untyped-def]
        return value * 2

    return records.withColumn("b", twice("a"))


def by_pandas(records: DataFrame) -> DataFrame:
    def same(frames: Iterator[Any]) -> Iterator[Any]:
        yield from frames

    return records.mapInPandas(same, "a long")


def union(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.union(right)


@dataclass(frozen=True)
class Work:
    transform: Callable[..., DataFrame]
    sources: int = 1
    in_short: tuple[str, ...] = ()
    """The modes of the short form of the test."""


BOTH = ("realtime", "microbatch")
WORKS = {
    "stateless": Work(plain, in_short=BOTH),
    "aggregate": Work(counted, in_short=BOTH),
    "udf": Work(by_udf, in_short=("realtime",)),
    "mapInPandas": Work(by_pandas),
    "two sources": Work(union, sources=2, in_short=("realtime",)),
}
CASES = [(name, mode) for name, work in WORKS.items() for mode in BOTH if SOAK or mode in work.in_short]


@pytest.fixture(scope="module")
def times(request: pytest.FixtureRequest) -> Iterator[dict[str, list[float]]]:
    measured: dict[str, list[float]] = {}
    yield measured
    if SOAK:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print("\n\n| work | stops | median | longest |\n|---|---|---|---|")
            for name, each in measured.items():
                print(f"| {name} | {len(each)} | {statistics.median(each):.2f} s | {max(each):.2f} s |")


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_nothing_is_lost_or_repeated(
    kafka: Kafka, tmp_path: Path, times: dict[str, list[float]], name: str, mode: str
) -> None:
    require_exact_stops(kafka, tmp_path, times, name, mode)


def require_exact_stops(kafka: Kafka, tmp_path: Path, times: dict[str, list[float]], name: str, mode: str) -> None:
    """Stop and start a query under load, and require that every record was processed once."""
    work = WORKS[name]
    topics = [kafka.topic(f"in{number}", 2) for number in range(work.sources)]
    pipeline = tr.Pipeline(
        f"stops-{secrets.token_hex(4)}",
        tuple(tr.KafkaSource(topic, "a long", starting="earliest") for topic in topics),
        work.transform,
        tr.KafkaSink(kafka.topic("out", 1)),  # one, so that the counts of a key have an order
    )
    options: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
    options["stop_timeout"] = "60s"  # executors that have just started load their classes during the first batch
    taken = times.setdefault(f"{name}, {mode}", [])
    with Load(kafka, topics, per_second=1000) as load:
        for number in range(RESTARTS):
            running = tr.start(pipeline, mode, **options)
            time.sleep(0.2 + 0.37 * (number % 4))  # to stop at different points
            began = time.monotonic()
            summary = running.stop(60)  # on a busy machine a batch takes its time
            taken.append(time.monotonic() - began)
            note("stops", f"{name}, {mode}{PLACE}", taken[-1])
            assert summary.repeats == ""
            assert summary.uncommitted_rows == 0
    summary = tr.run(pipeline, mode, once=True, **options)
    assert summary.repeats == ""
    rows = [json.loads(record.value) for record in read_records(kafka.config, pipeline.sink.topic)]
    if work.transform is counted:
        lost, repeated = of_counts(rows, load.sent, every=mode == "realtime")
    else:
        written, sent = Counter(row["a"] for row in rows), Counter(range(load.sent))
        lost, repeated = (sent - written).total(), (written - sent).total()
    row = f"{name}, {mode}{PLACE}"
    note_records("stops", row, sent=load.sent, seconds=load.seconds, lost=lost, repeated=repeated)
    assert (lost, repeated) == (0, 0)


def of_counts(rows: list[Any], sent: int, *, every: bool) -> tuple[int, int]:
    """Return how many records are missing in the counts of each key, and how many were counted or written twice.

    The counts of a key rise, and the last one is right. In real time each count is written.
    """
    last: Counter[int] = Counter()
    lost = repeated = 0
    for row in rows:
        step = row["count"] - last[row["key"]]
        repeated += step <= 0
        lost += step - 1 if every and step > 1 else 0
        last[row["key"]] = max(row["count"], last[row["key"]])
    right = Counter(number % KEYS for number in range(sent))
    return lost + (right - last).total(), repeated + (last - right).total()
