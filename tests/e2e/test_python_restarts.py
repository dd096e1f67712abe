"""Python functions across checkpoints, stops and restarts under load: no record is lost, and only replays repeat.

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
from tailrace.checkpoint import Checkpoint
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import log_ends

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
    place = tmp_path / "checkpoint"
    options: dict[str, Any] = {"checkpoint": place, "checkpoint_every": "1s", "conf": SHORTEST}
    starts: list[dict[int, int]] = []
    ends: list[dict[int, int]] = []
    boundaries = 0
    with Load(kafka, [source]) as load:
        for number in range(RESTARTS + 1):
            starts.append(saved(place, source))
            with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options) as running:
                if number < RESTARTS:
                    time.sleep(1.3 + 0.37 * (number % 4))  # stop at different points of the interval
                else:
                    wait_until(lambda: len(running.query.recentProgress) >= BOUNDARIES, 120, "the boundaries")
                boundaries += running.stop().batches
            ends.append(dict(log_ends(kafka.config, {sink: 2})[sink]))
    starts.append(saved(place, source))
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options) as running:
        kafka.receive(sink, all_of(load.sent), 60)
        running.stop()
    ends.append(dict(log_ends(kafka.config, {sink: 2})[sink]))
    assert boundaries >= BOUNDARIES
    require_only_replays(list(read_records(kafka.config, sink)), starts, ends)


def all_of(count: int) -> Callable[[list[Any]], bool]:
    """Return a condition that holds once this many different records have been received."""
    found: set[int] = set()

    def are_there(seen: list[Any]) -> bool:
        found.update(row["a"] for _, row in seen[-1:])
        return len(found) == count

    return are_there


def saved(place: Path, topic: str) -> dict[int, int]:
    """Return the start offset of a checkpoint's next run by partition."""
    offsets = Checkpoint(place).saved_offsets()
    found = json.loads(offsets[0])[topic] if offsets else {}
    return {partition: int(found.get(str(partition), 0)) for partition in (0, 1)}


def require_only_replays(records: list[Any], starts: list[dict[int, int]], ends: list[dict[int, int]]) -> None:
    """Check that each run wrote every record from its start offset once and without gaps."""
    before = {0: 0, 1: 0}
    for start, end in zip(starts, ends, strict=True):
        here = [record for record in records if before[record.partition] <= record.offset < end[record.partition]]
        before = end
        rows = [json.loads(record.value) for record in here]
        assert all(row["b"] == 2 * row["a"] for row in rows)
        for partition in (0, 1):
            offsets = Counter(row["a"] // 2 for row in rows if row["a"] % 2 == partition)
            assert set(offsets.values()) <= {1}, "twice in one run"
            assert sorted(offsets) == list(range(start[partition], start[partition] + len(offsets)))
