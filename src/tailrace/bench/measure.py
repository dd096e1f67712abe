"""One measurement: load, engine and probe, from the first record to the last."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.bench.resources import Resources
from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig
from tailrace.latency.clock import Clock
from tailrace.latency.schedule import NS_PER_S, Schedule
from tailrace.traffic.arrivals import Arrivals
from tailrace.traffic.load import Flow, Load, LoadReport
from tailrace.traffic.probe import ByFields, ByLineage, OnSnapshot, Probe, Snapshot

FIRST_OUTPUT_TIMEOUT_S = 120.0
_DRAIN_TIMEOUT_S = 20.0
_SETTLE_S = 3.0


@dataclass(frozen=True)
class Plan:
    """What every lane of a benchmark has in common.

    Attributes:
        flow: What is sent, and when.
        seconds: How long is measured.
        warmup_s: How long before that does not count, from the first record that came out.
        known_by: How a result is traced to the record that caused it.
        drain_s: How long to wait for records that are still on their way.
    """

    flow: Flow
    seconds: float
    warmup_s: float
    known_by: ByFields | ByLineage
    drain_s: float = _DRAIN_TIMEOUT_S


@dataclass(frozen=True)
class Moment:
    """Where a measurement is, for whoever shows it."""

    phase: str
    """``start``, ``warm-up``, ``measure`` or ``drain``."""
    elapsed_s: float
    total_s: float
    snapshot: Snapshot | None


Show = Callable[[Moment], None]


class Engine(Protocol):
    """What is measured, as far as a measurement has to know."""

    def require_running(self) -> None:
        """Raise if it has ended."""


class NoEngine:
    """Nothing between producer and consumer."""

    def require_running(self) -> None:
        """There is nothing that could end."""


@dataclass(frozen=True)
class Measurement:
    """What was seen.

    Attributes:
        schedule: When each record was due.
        first: The first measured record.
        end: The one after the last measured record.
        first_ns: When the measured window begins.
        end_ns: When it ends.
        began_ns: When the measurement began: no record of it was sent before.
        arrivals: Everything that came out, also before the window.
        load: How the load kept to its plan.
        resources: CPU and memory by process tree, over the window.
        first_output_s: How long after the start the first record came out.
    """

    schedule: Schedule
    first: int
    end: int
    first_ns: int
    end_ns: int
    began_ns: int
    arrivals: Arrivals
    load: LoadReport
    clock: Clock
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    first_output_s: float = 0.0


def measure(
    plan: Plan,
    client: ClientConfig,
    topics: tuple[str, str],
    engine: Engine,
    show: Show,
    *,
    processes: Mapping[str, int] | None = None,
    merges: bool = False,
) -> Measurement:
    """Send from the plan's start, wait for the first results, warm up, then measure by intended send time.

    Args:
        plan: The load and the window.
        client: Settings of our own clients.
        topics: The engine's source and sink, which are one topic where there is no engine.
        engine: What is between them; it runs already, or is starting.
        show: Told where the measurement is, twice a second.
        processes: Roots of process trees whose use of the machine is to be noted, by name.
        merges: Whether one result may stand for several records, so that not every record is waited for.
    """
    clock = Clock.starting_at(time.time_ns(), time.monotonic_ns)
    began_ns, began = clock.now_ns(), time.monotonic()
    limit_s = FIRST_OUTPUT_TIMEOUT_S + plan.warmup_s + plan.seconds
    source, sink = topics
    with (
        Probe(client, sink, clock=clock, known_by=plan.known_by) as probe,
        Load(client, source, plan.flow, clock=clock, limit_s=limit_s) as load,
    ):
        _wait_for_first_output(probe, engine, show)
        first_output_s = time.monotonic() - began
        # The burst may be through before the plan's first record is due.
        first_ns = max(clock.now_ns(), load.plan.start_ns) + round(plan.warmup_s * NS_PER_S)
        end_ns = first_ns + round(plan.seconds * NS_PER_S)
        load.measure(first_ns, end_ns)
        on_snapshot = _teller(plan, clock, first_ns, end_ns, engine, show)
        probe.watch(lambda _: clock.now_ns() >= first_ns, on_snapshot)
        resources = Resources({**(processes or {}), "load": load.pid, "probe": probe.pid})
        resources.begin()
        probe.watch(lambda _: clock.now_ns() >= end_ns, on_snapshot)
        used = resources.end()
        report = load.report(plan.drain_s)
        first, end = load.plan.count_until(first_ns), load.plan.count_until(end_ns)
        uncertain = merges or isinstance(plan.known_by, ByLineage)
        arrivals = probe.arrivals(
            first, end, timeout_s=plan.drain_s, on_snapshot=on_snapshot, settle_s=_SETTLE_S if uncertain else None
        )
        return Measurement(
            load.plan,
            first,
            end,
            first_ns,
            end_ns,
            began_ns,
            arrivals,
            report,
            clock,
            used,
            round(first_output_s, 2),
        )


def _teller(plan: Plan, clock: Clock, first_ns: int, end_ns: int, engine: Engine, show: Show) -> OnSnapshot:
    def on_snapshot(snapshot: Snapshot) -> None:
        now = clock.now_ns()
        if now < first_ns:
            elapsed_s = max(0.0, plan.warmup_s - (first_ns - now) / NS_PER_S)
            show(Moment("warm-up", elapsed_s, plan.warmup_s, snapshot))
        elif now < end_ns:
            show(Moment("measure", (now - first_ns) / NS_PER_S, plan.seconds, snapshot))
        else:
            show(Moment("drain", 0.0, 0.0, snapshot))
        engine.require_running()

    return on_snapshot


def _wait_for_first_output(probe: Probe, engine: Engine, show: Show) -> None:
    started = time.monotonic()

    def on_snapshot(snapshot: Snapshot) -> None:
        waited = time.monotonic() - started
        show(Moment("start", waited, 0.0, snapshot))
        engine.require_running()
        if waited > FIRST_OUTPUT_TIMEOUT_S:
            raise MeasurementFailed(
                f"nothing came out within {FIRST_OUTPUT_TIMEOUT_S:.0f} s",
                fix="see whether other programs keep this machine busy",
            )

    probe.watch(lambda snapshot: snapshot.arrived > 0, on_snapshot)
