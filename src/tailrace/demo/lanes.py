"""The demo's three lanes, each measured the same way: the bare broker, real time, micro-batch."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tailrace.errors import MeasurementFailed
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import ClientConfig, create_topic
from tailrace.latency.clock import Clock
from tailrace.latency.lane import LaneResult
from tailrace.latency.schedule import NS_PER_S
from tailrace.pipeline import Pipeline
from tailrace.runtime.options import RunOptions
from tailrace.runtime.running import RunningQuery
from tailrace.runtime.start import start_pipeline
from tailrace.traffic.load import Load, LoadReport
from tailrace.traffic.probe import Probe, Snapshot

_FIRST_OUTPUT_TIMEOUT_S = 90.0
_DRAIN_TIMEOUT_S = 20.0
_BURST = 30_000
"""Records sent at once at the very start of the warm-up, so that both JVMs compile their hot code in it."""


@dataclass(frozen=True)
class Plan:
    """What every lane has in common."""

    bootstrap_servers: str
    rate_per_s: float
    seconds: float
    warmup_s: float
    partitions: int

    @property
    def client(self) -> ClientConfig:
        """Settings for our own clients of the demo's broker."""
        config = client_config(self.bootstrap_servers, {})
        if config is None:
            raise AssertionError("plain options always translate")
        return config


@dataclass(frozen=True)
class Moment:
    """Where a lane is, for whoever shows it."""

    phase: str
    """``start``, ``warm-up``, ``measure`` or ``drain``."""
    elapsed_s: float
    total_s: float
    snapshot: Snapshot | None


Show = Callable[[Moment], None]


def floor_lane(plan: Plan, show: Show) -> LaneResult:
    """Producer to consumer with no engine in between: what nothing on this machine can beat."""
    create_topic(plan.client, "floor", plan.partitions)
    return _measure(plan, "floor", "floor", None, show)


def pipeline_lane(plan: Plan, lane: str, pipeline: Pipeline, options: RunOptions, show: Show) -> LaneResult:
    """The pipeline as one lane, between topics of its own."""
    source, sink = f"payments-{lane}", f"decisions-{lane}"
    for topic in (source, sink):
        create_topic(plan.client, topic, plan.partitions)
    here = replace(
        pipeline,
        name=f"{pipeline.name}-{lane}",
        source=replace(pipeline.sources[0], topics=source),
        sink=replace(pipeline.sink, topic=sink),
    )
    show(Moment("start", 0.0, 0.0, None))
    with start_pipeline(here, options) as query:
        return _measure(plan, source, sink, query, show)


def _measure(plan: Plan, source: str, sink: str, query: RunningQuery | None, show: Show) -> LaneResult:
    """Send from the plan's start, wait for the first results, warm up, then measure by intended send time."""
    clock = Clock.starting_at(time.time_ns(), time.monotonic_ns)
    limit_s = _FIRST_OUTPUT_TIMEOUT_S + plan.warmup_s + plan.seconds
    with (
        Probe(plan.client, sink, clock=clock) as probe,
        Load(plan.client, source, rate_per_s=plan.rate_per_s, clock=clock, limit_s=limit_s, burst=_BURST) as load,
    ):
        _wait_for_first_output(probe, query, show)
        # The burst may be through before the plan's first record is due.
        first_ns = max(clock.now_ns(), load.plan.start_ns) + round(plan.warmup_s * NS_PER_S)
        end_ns = first_ns + round(plan.seconds * NS_PER_S)
        load.end_at(end_ns)

        def on_snapshot(snapshot: Snapshot) -> None:
            now = clock.now_ns()
            if now < first_ns:
                elapsed_s = max(0.0, plan.warmup_s - (first_ns - now) / NS_PER_S)
                show(Moment("warm-up", elapsed_s, plan.warmup_s, snapshot))
            elif now < end_ns:
                show(Moment("measure", (now - first_ns) / NS_PER_S, plan.seconds, snapshot))
            else:
                show(Moment("drain", 0.0, 0.0, snapshot))
            if query is not None and not query.is_active:
                query.raise_if_failed()

        probe.watch(lambda _: clock.now_ns() >= end_ns, on_snapshot)
        _require_on_plan(load.report(_DRAIN_TIMEOUT_S), plan)
        first, end = load.plan.count_until(first_ns), load.plan.count_until(end_ns)
        return probe.result(first, end, timeout_s=_DRAIN_TIMEOUT_S, on_snapshot=on_snapshot)


def _wait_for_first_output(probe: Probe, query: RunningQuery | None, show: Show) -> None:
    started = time.monotonic()

    def on_snapshot(snapshot: Snapshot) -> None:
        waited = time.monotonic() - started
        show(Moment("start", waited, 0.0, snapshot))
        if query is not None and not query.is_active:
            query.raise_if_failed()
        if waited > _FIRST_OUTPUT_TIMEOUT_S:
            raise MeasurementFailed(
                f"nothing came out of the pipeline within {_FIRST_OUTPUT_TIMEOUT_S:.0f} s",
                fix="see whether other programs keep this machine busy",
            )

    probe.watch(lambda snapshot: snapshot.arrived > 0, on_snapshot)


def _require_on_plan(report: LoadReport, plan: Plan) -> None:
    """Void the lane where the load itself failed: its figures would be about the load."""
    if report.failed:
        raise MeasurementFailed(
            f"{report.failed} of {report.sent} records could not be sent",
            why="the broker did not take them",
            fix="try a lower --rate",
        )
    if report.late_ms_p99 > 1000:
        raise MeasurementFailed(
            f"the load generator fell behind its plan by {report.late_ms_p99:.0f} ms",
            why=f"this machine cannot send {plan.rate_per_s:g} events/s beside everything else that runs on it",
            fix="try a lower --rate",
        )
