"""The order of load, faults and recoveries, with a pipeline that recovers when a test says so."""

import io
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from rich.console import Console

from tailrace.chaos import course as module
from tailrace.chaos.course import Course
from tailrace.chaos.faults import FaultTargets
from tailrace.chaos.journal import FaultRecord, Journal
from tailrace.chaos.options import ChaosOptions, Fault, FaultTiming
from tailrace.chaos.receiver import Recovery
from tailrace.chaos.screen import ChaosScreen
from tailrace.errors import RecoveryFailed
from tailrace.measure.traffic.load import Flow
from tailrace.measure.traffic.records import Events


class FakePipeline:
    """A pipeline that is started again at the second look after its end."""

    def __init__(self) -> None:
        self.starts = 1
        self.is_running = True
        self.tolerates_failures = False
        self.settings = SimpleNamespace(checkpoint=Path("checkpoint"))

    def watch(self) -> None:
        if not self.is_running:
            self.starts, self.is_running = self.starts + 1, True

    def has_ended_start(self, number: int) -> bool:
        return self.starts > number

    def failure(self, what: str) -> RecoveryFailed:
        return RecoveryFailed(what)


class FakeReceiver:
    """Receives an output at every look."""

    def __init__(self) -> None:
        self._counted = itertools.count()
        self.last_at = 0.0
        self.recovers: Any = lambda _expected: True
        self.expected: list[Recovery] = []

    @property
    def received(self) -> int:
        return next(self._counted)

    def require_countable(self) -> None:
        pass

    def expect(self, sent_after: Any) -> Recovery:
        recovery = Recovery(sent_after, 0.0)
        self.expected.append(recovery)
        if self.recovers(len(self.expected)):
            for each in self.expected:
                each.at = each.at or module.time.monotonic()
        return recovery


class FakeLoad:
    """A load that has sent everything."""

    def __init__(self, *_given: Any, **_settings: Any) -> None:
        self.ended = False

    def require_running(self) -> None:
        pass

    def measure(self, _first_ns: int, _end_ns: int) -> None:
        self.ended = True

    def report(self, _timeout_s: float) -> None:
        assert self.ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Scene:
    """A course with fakes around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.pipeline, self.receiver = FakePipeline(), FakeReceiver()
        self.injected: list[tuple[Fault, int]] = []
        self.folder = folder
        self.printed = io.StringIO()
        monkeypatch.setattr(module, "Load", FakeLoad)
        monkeypatch.setattr(module, "inject", self._inject)
        monkeypatch.setattr(module, "partition_counts", lambda _client, topics: dict.fromkeys(topics, 1))
        monkeypatch.setattr(module, "log_ends", lambda _client, counts: {topic: {0: 7} for topic in counts})
        monkeypatch.setattr(module, "_SETTLED_S", 0.0)
        monkeypatch.setattr(module, "AFTER_RESTART_S", 0.05)

    def _inject(self, fault: Fault, targets: FaultTargets) -> None:
        assert self.pipeline.tolerates_failures
        self.injected.append((fault, self.pipeline.starts))
        if fault in (Fault.JVM, Fault.DRIVER):
            self.pipeline.is_running = False

    def course(self, options: ChaosOptions) -> Course:
        given: Any = (self.pipeline, None, None, self.receiver)
        journal = Journal(self.folder / "faults.jsonl", "print")
        screen = ChaosScreen(Console(file=self.printed, width=200))
        return Course(options, {}, "in", Flow(Events(), 10), *given, journal, screen)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    return Scene(monkeypatch, tmp_path)


def test_faults_come_in_turn_and_are_saved(scene: Scene) -> None:
    course = scene.course(ChaosOptions(kills=3, faults=(Fault.JVM, Fault.WORKERS), seconds=0.3))
    course.run()
    assert scene.injected == [(Fault.JVM, 1), (Fault.WORKERS, 2), (Fault.JVM, 2)]
    saved = Journal(scene.folder / "faults.jsonl", "print").faults
    assert [(each.number, each.fault, each.restarted) for each in saved] == [
        (1, "jvm", True),
        (2, "workers", False),
        (3, "jvm", True),
    ]
    assert course.drain_ms is not None
    assert not scene.pipeline.tolerates_failures


def test_an_interrupted_run_injects_only_what_is_left(scene: Scene) -> None:
    journal = Journal(scene.folder / "faults.jsonl", "print")
    journal.add(FaultRecord(1, "jvm", "random", 0.1, 100, restarted=True), 0.2)
    course = scene.course(ChaosOptions(kills=2, faults=(Fault.JVM, Fault.WORKERS), seconds=0.3))
    course.run()
    assert scene.injected == [(Fault.WORKERS, 1)]


def test_kills_after_a_restart_do_not_wait_for_a_recovery(scene: Scene) -> None:
    scene.receiver.recovers = lambda expected: expected == 3
    course = scene.course(ChaosOptions(kills=3, at=FaultTiming.RESTART, seconds=0.1))
    course.run()
    assert scene.injected == [(Fault.JVM, 1), (Fault.JVM, 2), (Fault.JVM, 3)]
    assert [each.moment for each in course.journal.faults] == ["restart"] * 3


def test_no_recovery_is_an_error_that_names_the_fault(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RECOVERY_TIMEOUT_S", 0.1)
    scene.receiver.recovers = lambda _expected: False
    with pytest.raises(RecoveryFailed, match=r"no new output came after fault 1 \(jvm\)"):
        scene.course(ChaosOptions(kills=2, seconds=0.1)).run()
