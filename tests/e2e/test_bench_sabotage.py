"""A benchmark that is sabotaged says so: real broker, real load, real probe, and an engine that does harm."""

import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TESTS, Kafka

from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import list_topics
from tailrace.measure import measurement
from tailrace.measure.lane import Cell, Command, Trigger
from tailrace.measure.lanes import Floor
from tailrace.measure.options import BenchOptions
from tailrace.measure.run import Bench, run_cells
from tailrace.measure.schedule import Clock
from tailrace.measure.traffic.load import Load
from tailrace.measure.traffic.probe import ByLineage, Probe, Snapshot
from tailrace.measure.traffic.records import Generated
from tailrace.measure.works import Work
from tailrace.report.result import Reason, Run

OPTIONS = BenchOptions(rate=1000, seconds=2, warmup=0.5, burst=0)
RECORDS = 2000


@dataclass(frozen=True)
class Passing:
    """A lane with the engine of these tests."""

    harm: str = "none"
    stale: str = ""
    """Another topic that it reads instead of its own."""
    name: str = "passing"
    title: str = "passing"
    works: frozenset[Work] = frozenset({Work.STATELESS})
    is_baseline: bool = False
    trigger: Trigger | None = None
    merges: bool = False
    settings: dict[str, str] = field(default_factory=dict)

    def prepare(self, announce: Any) -> None:
        pass

    def versions(self) -> dict[str, str]:
        return {}

    def command(self, cell: Cell) -> Command:
        source = self.stale or cell.source
        program = str(TESTS / "passing_engine.py")
        return Command((sys.executable, program, cell.bootstrap_servers, source, cell.sink, self.harm))


@pytest.fixture
def bench(kafka: Kafka, tmp_path: Path) -> Bench:
    return Bench(kafka.bootstrap_servers, plain_client(kafka.bootstrap_servers), 2, tmp_path)


def run(bench: Bench, lane: Any, options: BenchOptions = OPTIONS) -> Run:
    cell = options.cell(lane)
    (line,) = run_cells(bench, [replace(cell, plan=replace(cell.plan, drain_s=4))], lambda _: None)
    return line


def reports(line: Run, words: str) -> bool:
    return any(words in problem for problem in line.problems)


def test_an_honest_lane_has_every_record_once_and_right(bench: Bench) -> None:
    line = run(bench, Passing())
    assert line.result.samples == RECORDS
    assert (line.result.lost, line.result.duplicated, line.output_wrong) == (0, 0, 0)
    # A busy machine may delay the load, and then the lane; nothing else may be wrong.
    assert set(line.reasons) <= {Reason.LATE_LOAD, Reason.FELL_BEHIND}
    assert set(line.spans_ms or ()) == {"intended to broker", "broker to sink", "sink to receipt"}
    assert {"engine", "load", "probe"} <= line.resources.keys()
    assert not [topic for topic in list_topics(bench.client) if topic.startswith("bench-passing")], (
        "its topics go with it"
    )


def test_one_record_in_a_thousand_dropped(bench: Bench) -> None:
    line = run(bench, Passing("drop"), replace(OPTIONS, seconds=3))
    assert line.result.lost == 3
    assert not line.valid
    assert reports(line, "never came out")


def test_records_repeated(bench: Bench) -> None:
    line = run(bench, Passing("repeat"))
    assert line.result.duplicated == RECORDS // 1000
    assert reports(line, "came out more than once")


def test_wrong_results(bench: Bench) -> None:
    line = run(bench, Passing("wrong"))
    assert line.output_wrong >= RECORDS // 1000
    assert reports(line, "results are wrong")


def test_a_stale_topic(bench: Bench) -> None:
    """The lane reads what another run left behind: the same numbers, but of records that this run never sent."""
    before = bench.topic("before")
    earlier = replace(OPTIONS, seconds=2)
    config = plain_client(bench.bootstrap_servers)
    clock = Clock.starting_at(1_700_000_000_000_000_000, time.monotonic_ns)
    with Load(config, before, earlier.plan().flow, clock=clock, limit_s=8) as load:
        load.report(30)
    line = run(bench, Passing(stale=before))
    assert reports(line, "a stale topic")
    assert not line.valid


def test_a_generator_that_falls_behind(bench: Bench, tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import json, time\n"
        "def make(number):\n"
        "    time.sleep(0.002)\n"
        '    return json.dumps({"id": number, "key": "k-0001", "amount": 1.0, "sent_ns": 0})\n'
    )
    cell = OPTIONS.cell(Floor())
    flow = replace(cell.plan.flow, records=Generated(str(slow), "make"))
    known_by = ByLineage()
    cell = replace(cell, plan=replace(cell.plan, flow=flow, known_by=known_by))
    (line,) = run_cells(bench, [cell], lambda _: None)
    assert reports(line, "the load missed its plan")
    assert not line.valid


class LateProbe(Probe):
    """Pretends to see a first record, and begins to read only when the window has begun."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._given = (given, settings)
        self._started = False

    @property
    def pid(self) -> int:
        self._start()
        return super().pid

    def watch(self, until: Any, on_snapshot: Any) -> None:
        while not self._started:
            snapshot = Snapshot(1, 0, None, None, None, True)
            on_snapshot(snapshot)
            if until(snapshot):
                return
        super().watch(until, on_snapshot)

    def close(self) -> None:
        self._start()
        super().close()

    def _start(self) -> None:
        if not self._started:
            given, settings = self._given
            super().__init__(*given, **settings)
            self._started = True


def test_a_probe_that_is_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "Probe", LateProbe)
    line = run(bench, Floor())
    assert reports(line, "the probe was late") or reports(line, "the probe never caught up")
    assert not line.valid
