"""Python functions across checkpoints, stops and restarts under load: no record is lost, and none is repeated.

``TAILRACE_RESTARTS`` sets the number of restarts; `make soak` uses twenty.
"""

import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from load import Load
from pyspark import cloudpickle
from python_kinds import KINDS, doubling

import tailrace as tr
from tailrace.kafka.records import read_records

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

RESTARTS = int(os.environ.get("TAILRACE_RESTARTS", "2"))
BOUNDARIES = 10 if RESTARTS > 2 else 3
SHORTEST = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}


def twice(value: int) -> int:
    return value * 2


@pytest.mark.parametrize("kind", KINDS if RESTARTS > 2 else ["pandas"])
def test_stops_and_restarts_under_load(kafka: Kafka, kind: str, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 2), kafka.topic("out", 2)
    here = tr.Pipeline(
        f"restarts-{secrets.token_hex(4)}",
        tr.KafkaSource(source, "a long", starting="earliest"),
        doubling(kind, twice),
        tr.KafkaSink(sink),
    )
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": "1s", "conf": SHORTEST}
    boundaries = 0
    with Load(kafka, [source]) as load:
        for number in range(RESTARTS + 1):
            with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options) as running:
                if number < RESTARTS:
                    time.sleep(1.3 + 0.37 * (number % 4))  # stop at different points of the interval
                else:
                    wait_until(lambda: len(running.query.recentProgress) >= BOUNDARIES, 120, "the boundaries")
                boundaries += running.stop().batches
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options):
        kafka.receive(sink, all_of(load.sent), 60)
    assert boundaries >= BOUNDARIES
    rows = [json.loads(record.value) for record in read_records(kafka.config, sink)]
    assert Counter(row["a"] for row in rows) == Counter(range(load.sent))
    assert all(row["b"] == 2 * row["a"] for row in rows)


def all_of(count: int) -> Callable[[list[Any]], bool]:
    """Return a condition that holds once this many different records have been received."""
    values: set[int] = set()

    def are_there(seen: list[Any]) -> bool:
        values.update(row["a"] for _, row in seen[-1:])
        return len(values) == count

    return are_there
