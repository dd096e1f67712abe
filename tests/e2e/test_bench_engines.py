"""The lanes of other engines, for real: each set up, run on a few hundred records, its results checked.

The set-up downloads up to half a gigabyte, so that these tests run only where ``TAILRACE_ENGINES`` is 1.
"""

import json
import math
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from conftest import Kafka, marked_processes, wait_until

from tailrace.measure.lane import Cell, Lane
from tailrace.measure.lanes.engines import ENGINE_LANES
from tailrace.measure.process import LaneProcess
from tailrace.measure.works import Work

pytestmark = [
    pytest.mark.skipif(os.environ.get("TAILRACE_ENGINES") != "1", reason="heavy: run `make test-engines`"),
    # The first run of all downloads and compiles.
    pytest.mark.timeout(1800),
]

LANES: list[Lane] = list(ENGINE_LANES)
CASES = [(lane, work) for lane in LANES for work in sorted(lane.works)]
RECORDS = 300
KEYS = 20


def events() -> list[dict[str, object]]:
    chance = random.Random(7)
    return [
        {
            "id": number,
            "key": f"k-{number % KEYS:04d}",
            "amount": round(chance.uniform(0, 1000), 2),
            "sent_ns": 1_763_200_000_000_000_000 + number,
            "pad": "x" * 40,
        }
        for number in range(RECORDS)
    ]


def send(kafka: Kafka, topic: str, sent: list[dict[str, object]]) -> None:
    producer = Producer({**kafka.config, "linger.ms": 0})
    for event in sent:
        producer.produce(topic, json.dumps(event).encode(), str(event["key"]).encode())
    assert producer.flush(20) == 0


def expected(sent: list[dict[str, object]], work: Work) -> dict[int, dict[str, object]]:
    """The result of each record, by its id."""
    results: dict[int, dict[str, object]] = {}
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    for event in sent:
        number, key, amount = int(str(event["id"])), str(event["key"]), float(str(event["amount"]))
        counts[key], totals[key] = counts.get(key, 0) + 1, totals.get(key, 0.0) + amount
        computed: dict[Work, dict[str, object]] = {
            Work.STATELESS: {"doubled": amount * 2},
            Work.PYTHON: {"score": min(1.0, math.log1p(amount) / 10)},
            Work.AGGREGATE: {"count": counts[key], "total": totals[key]},
        }
        results[number] = {"id": number, "sent_ns": event["sent_ns"], "key": key, **computed[work]}
    return results


def last_of_each_key(results: list[dict[str, object]]) -> dict[object, dict[str, object]]:
    return {result["key"]: result for result in sorted(results, key=lambda result: int(str(result["id"])))}


def listeners_elsewhere(processes: set[int]) -> list[str]:
    """What these processes listen on besides loopback."""
    table = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    own = [line for line in table.splitlines() if processes & {int(pid) for pid in re.findall(r"pid=(\d+)", line)}]
    return [line for line in own if "127.0.0.1" not in line.split()[3] and "[::1]" not in line.split()[3]]


@pytest.mark.parametrize(("lane", "work"), CASES, ids=[f"{lane.name}-{work}" for lane, work in CASES])
def test_a_lane_computes_the_work_and_leaves_nothing_behind(
    lane: Lane, work: Work, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"TAILRACE_TEST_MARK={kafka.topic('mark', 1)}"
    monkeypatch.setenv(*mark.split("=", 1))
    said: list[str] = []
    lane.prepare(said.append)
    lane.prepare(pytest.fail)  # the second time it has nothing to do, and nothing to say
    source, sink = kafka.topic("in", 2), kafka.topic("out", 2)
    cell = Cell(work, kafka.bootstrap_servers, source, sink, 2, tmp_path, checkpoint_every_s=2.0)
    command = lane.command(cell)
    assert command is not None
    sent = events()
    send(kafka, source, sent)
    wanted = expected(sent, work)
    merged = lane.merges and work.merges
    with LaneProcess(lane.name, command, tmp_path / "log") as process:

        def enough(seen: list[tuple[str, dict[str, object]]]) -> bool:
            process.require_running()
            if not merged:
                return len(seen) >= RECORDS
            return set(last_of_each_key([value for _, value in seen])) == {event["key"] for event in sent}

        seen = kafka.receive(sink, enough, timeout_s=120)
        assert not listeners_elsewhere(set(marked_processes(mark)))
    assert all(key == value["key"] for key, value in seen)
    results = [value for _, value in seen]
    if merged:
        final, truth = last_of_each_key(results), last_of_each_key(list(wanted.values()))
        assert {key: final[key]["count"] for key in final} == {key: truth[key]["count"] for key in truth}
    else:
        assert sorted(int(result["id"]) for result in results) == sorted(wanted)
    for result in results:
        assert result == pytest.approx(wanted[result["id"]])
    wait_until(lambda: not marked_processes(mark), 10, "every process of the lane has ended")
