"""One measurement: load, engine and probe, from the first record to the last."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig
from tailrace.measure.process import Resources
from tailrace.measure.schedule import NS_PER_S, Clock
from tailrace.measure.traffic.load import Flow, Load, LoadReport
from tailrace.measure.traffic.probe import Arrivals, ByFields, ByLineage, OnSnapshot, Probe, Snapshot
from tailrace.report.result import Usage

FIRST_OUTPUT_TIMEOUT_S = 120.0
_DRAIN_TIMEOUT_S = 20.0
_SETTLE_S = 3.0


@dataclass(frozen=True)
class Plan:
    """The load and the window of a measurement.

    Attributes:
        flow: What is sent, and when.
        seconds: The length of the window.
        warmup_s: Seconds from the first result to the window.
        known_by: How to find the record that caused a result.
        drain_s: How long to wait for records that have not come out yet.
        held_s: How long the engine holds results by its own settings.
    """

    flow: Flow
    seconds: float
    warmup_s: float
    known_by: ByFields | ByLineage
    drain_s: float = _DRAIN_TIMEOUT_S
    held_s: float = 0.0


@dataclass(frozen=True)
class Moment:
    """The progress of a measurement."""

    phase: str
    """``start``, ``warm-up``, ``measure`` or ``drain``."""
    elapsed_s: float
    total_s: float
    snapshot: Snapshot | None


Show = Callable[[Moment], None]


class Engine(Protocol):
    """The engine that is measured."""

    def require_running(self) -> None:
        """Raise an error if it has ended."""


class NoEngine:
    """No engine between producer and consumer."""

    def require_running(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Measurement:
    """The samples of one window.

    Attributes:
        first: The first measured record.
        end: The record after the last measured one.
        first_ns: When the measured window begins.
        end_ns: When it ends.
        began_ns: When the measurement began.
        arrivals: Every result, also from before the window.
        load: How well the load kept to its plan.
        resources: CPU and memory by process tree, over the window.
        first_output_s: Seconds from the start to the first result.
    """

    first: int
    end: int
    first_ns: int
    end_ns: int
    began_ns: int
    arrivals: Arrivals
    load: LoadReport
    clock: Clock
    resources: Mapping[str, Usage] = field(default_factory=dict)
    first_output_s: float = 0.0


def measure(
    plans: Sequence[Plan],
    client: ClientConfig,
    topics: tuple[str, str],
    engine: Engine,
    show: Show,
    *,
    processes: Mapping[str, Callable[[], int]] | None = None,
    merges: bool = False,
) -> list[Measurement]:
    """Send, wait for the first result, warm up, then measure by intended send time.

    Each further plan has its own load, right after the one before, into the running engine.

    Args:
        plans: The loads and their windows.
        client: The settings of the load and the probe.
        topics: The engine's source and sink; the same topic if there is no engine.
        engine: The engine, running or starting.
        show: Called with the progress twice a second.
        processes: The roots of process trees to measure, by name.
        merges: Whether one result may stand for several records, so that some have none.
    """
    clock = Clock.starting_at(time.time_ns(), time.monotonic_ns)
    began_ns, began = clock.now_ns(), time.monotonic()
    known_by = plans[0].known_by
    windows: list[_Window] = []
    with Probe(client, topics[1], clock=clock, known_by=known_by) as probe:
        course = _Course(client, topics[0], engine, show, clock, probe, processes or {})
        for plan in plans:
            windows.append(course.window(plan, windows[-1].end if windows else 0, began if not windows else None))
        uncertain = merges or isinstance(known_by, ByLineage)
        arrivals = probe.arrivals(
            windows[0].first,
            windows[-1].end,
            timeout_s=max(plan.drain_s + 2 * plan.held_s for plan in plans),
            on_snapshot=course.reporter(plans[-1], windows[-1].first_ns, windows[-1].end_ns),
            settle_s=max(plan.held_s for plan in plans) + _SETTLE_S if uncertain else None,
        )
    return [
        Measurement(
            each.first, each.end, each.first_ns, each.end_ns, began_ns, arrivals, each.load, clock, each.used,
            windows[0].first_output_s,
        )
        for each in windows
    ]  # fmt: skip


@dataclass(frozen=True)
class _Window:
    """One window before all its results have arrived."""

    first: int
    end: int
    first_ns: int
    end_ns: int
    load: LoadReport
    used: Mapping[str, Usage]
    first_output_s: float


@dataclass(frozen=True)
class _Course:
    """What the windows of a measurement share."""

    client: ClientConfig
    source: str
    engine: Engine
    show: Show
    clock: Clock
    probe: Probe
    processes: Mapping[str, Callable[[], int]]

    def window(self, plan: Plan, first_number: int, began: float | None) -> _Window:
        """Send and measure one plan. ``began`` is when the engine was started, if it is starting."""
        clock = self.clock
        limit_s = FIRST_OUTPUT_TIMEOUT_S + plan.warmup_s + plan.seconds
        flow = replace(plan.flow, first_number=first_number)
        with Load(self.client, self.source, flow, clock=clock, limit_s=limit_s) as load:
            first_output_s = 0.0
            if began is not None:
                _wait_for_first_output(self.probe, self.engine, self.show)
                first_output_s = time.monotonic() - began
            # The burst may come out before the first record of the plan is due.
            first_ns = max(clock.now_ns(), load.plan.start_ns) + round(plan.warmup_s * NS_PER_S)
            end_ns = first_ns + round(plan.seconds * NS_PER_S)
            load.measure(first_ns, end_ns)
            on_snapshot = self.reporter(plan, first_ns, end_ns)
            self.probe.watch(lambda _: clock.now_ns() >= first_ns, on_snapshot)
            resources = Resources({**self.processes, "load": lambda: load.pid, "probe": lambda: self.probe.pid})
            resources.begin()
            self.probe.watch(lambda _: clock.now_ns() >= end_ns, on_snapshot)
            used = resources.end()
            report = load.report(plan.drain_s)
            first, end = load.number_until(first_ns), load.number_until(end_ns)
        return _Window(first, end, first_ns, end_ns, report, used, round(first_output_s, 2))

    def reporter(self, plan: Plan, first_ns: int, end_ns: int) -> OnSnapshot:
        """Return a function that shows the progress and checks that the engine runs."""

        def on_snapshot(snapshot: Snapshot) -> None:
            now = self.clock.now_ns()
            if now < first_ns:
                elapsed_s = max(0.0, plan.warmup_s - (first_ns - now) / NS_PER_S)
                self.show(Moment("warm-up", elapsed_s, plan.warmup_s, snapshot))
            elif now < end_ns:
                self.show(Moment("measure", (now - first_ns) / NS_PER_S, plan.seconds, snapshot))
            else:
                self.show(Moment("drain", 0.0, 0.0, snapshot))
            self.engine.require_running()

        return on_snapshot


def _wait_for_first_output(probe: Probe, engine: Engine, show: Show) -> None:
    started = time.monotonic()

    def on_snapshot(snapshot: Snapshot) -> None:
        waited = time.monotonic() - started
        show(Moment("start", waited, 0.0, snapshot))
        engine.require_running()
        if waited > FIRST_OUTPUT_TIMEOUT_S:
            raise MeasurementFailed(
                f"no result came out within {FIRST_OUTPUT_TIMEOUT_S:.0f} s",
                fix="stop other programs that keep this machine busy, and try again",
            )

    probe.watch(lambda snapshot: snapshot.arrived > 0, on_snapshot)
