"""The demo: three lanes, measured as in the benchmark: Kafka alone, real time and micro-batch."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailrace.errors import MeasurementFailed, counted
from tailrace.kafka.broker import STARTING_TEMPORARY, temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic
from tailrace.measure.latency import lane_result
from tailrace.measure.measurement import Measurement, Moment, NoEngine, Plan, Show, measure
from tailrace.measure.screen import Screen
from tailrace.measure.traffic.load import Flow
from tailrace.measure.traffic.probe import ByFields
from tailrace.measure.traffic.records import PAYMENT_NUMBER_FIELD, SENT_FIELD, Payments
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.loader import load_pipeline
from tailrace.prepare.options import RunOptions
from tailrace.report.result import LaneResult
from tailrace.running.query import RunningQuery
from tailrace.running.start import start_query
from tailrace.spark_session import pin_context, replaceable_session

PIPELINE_FILE = Path(__file__).parent / "fraud.py"
TITLES = {"floor": "Kafka alone", "realtime": "real time", "microbatch": "micro-batch"}
_BURST = 30_000
"""Records sent at once before the warm-up, so that both JVMs compile their hot code early."""
_LATEST_MS = 1000.0


@dataclass(frozen=True)
class DemoOptions:
    """The options of the demo."""

    seconds: float = 25.0
    warmup_s: float = 15.0
    rate_per_s: float = 2000.0
    partitions: int = 2
    checkpoint_every: str = "5m"
    trigger_every: str = "500ms"


def run_demo(options: DemoOptions, screen: Screen) -> dict[str, LaneResult]:
    """Run all lanes and return their results, in the order of the table.

    The real-time lane runs first, so a warm JVM helps micro-batch.
    """
    pipeline = load_pipeline(str(PIPELINE_FILE))
    results: dict[str, LaneResult] = {}
    # Refuse wrong options now, not after a minute of measuring.
    for mode in Mode:
        RunOptions(mode, checkpoint_every=options.checkpoint_every, trigger_every=options.trigger_every)
    screen.say(STARTING_TEMPORARY)
    with temporary_broker(screen.say) as broker:
        client = plain_client(broker.bootstrap_servers)
        plan = payments_plan(options.rate_per_s, options.seconds, options.warmup_s)
        screen.say(
            f"{options.rate_per_s:,.0f} payments/s, {counted(options.partitions, 'partition')}, "
            f"{options.seconds:g} s measured per lane after {options.warmup_s:g} s of warm-up"
        )
        results["floor"] = floor_lane(plan, client, options.partitions, partial(screen.show, TITLES["floor"]))
        screen.done(TITLES["floor"], results["floor"])
        spark = replaceable_session(
            "tailrace-demo",
            master=f"local[{max(options.partitions, 2)}]",
            conf={"spark.ui.enabled": "false"},
            announce=screen.say,
            archives=False,  # writing them would slow down what is measured
        )
        pin_context()
        try:
            for mode in (Mode.REALTIME, Mode.MICROBATCH):
                lane = str(mode)
                run = RunOptions(
                    mode,
                    bootstrap_servers=broker.bootstrap_servers,
                    checkpoint=broker.scratch / lane,
                    checkpoint_every=options.checkpoint_every,
                    trigger_every=options.trigger_every,
                )
                show = partial(screen.show, TITLES[lane])
                results[lane] = pipeline_lane(plan, client, (lane, options.partitions), pipeline, run, show)
                screen.done(TITLES[lane], results[lane])
        finally:
            spark.stop()
    return {lane: results[lane] for lane in ("floor", "microbatch", "realtime")}


def payments_plan(rate_per_s: float, seconds: float, warmup_s: float) -> Plan:
    """Return a load of card payments at a constant rate."""
    return Plan(
        Flow(Payments(), rate_per_s, burst=_BURST), seconds, warmup_s, ByFields(PAYMENT_NUMBER_FIELD, SENT_FIELD)
    )


def floor_lane(plan: Plan, client: ClientConfig, partitions: int, show: Show) -> LaneResult:
    """Measure producer to consumer without an engine: the lower bound on this machine."""
    create_topic(client, "floor", partitions)
    return _result(measure([plan], client, ("floor", "floor"), NoEngine(), show)[0], plan)


def pipeline_lane(
    plan: Plan, client: ClientConfig, lane: tuple[str, int], pipeline: Pipeline, options: RunOptions, show: Show
) -> LaneResult:
    """Measure the pipeline between its own topics. ``lane`` is a name and a number of partitions."""
    name, partitions = lane
    source, sink = f"payments-{name}", f"decisions-{name}"
    for topic in (source, sink):
        create_topic(client, topic, partitions)
    here = replace(
        pipeline,
        name=f"{pipeline.name}-{name}",
        source=replace(pipeline.sources[0], topics=source),
        sink=replace(pipeline.sink, topic=sink),
    )
    show(Moment("start", 0.0, 0.0, None))
    with start_query(here, options) as query:
        return _result(measure([plan], client, (source, sink), _Running(query), show)[0], plan)


class _Running:
    """A query of this process as the engine."""

    def __init__(self, query: RunningQuery) -> None:
        self._query = query

    def require_running(self) -> None:
        if not self._query.is_active:
            self._query.raise_if_failed()


def _result(window: Measurement, plan: Plan) -> LaneResult:
    """Return the figures of a lane; raise an error if the load failed."""
    if window.load.failed:
        raise MeasurementFailed(
            f"{window.load.failed} of {window.load.sent} records could not be sent",
            why="the broker did not accept them",
            fix="try a lower --rate",
        )
    if window.load.late_ms_p99 > _LATEST_MS:
        raise MeasurementFailed(
            f"the load generator fell behind its plan by {window.load.late_ms_p99:.0f} ms",
            why=f"this machine is too busy to send {plan.flow.rate_per_s:g} events/s",
            fix="try a lower --rate",
        )
    measured = window.arrivals.within(window.first, window.end)
    firsts = measured.firsts()
    return lane_result(firsts.latency_ns, expected=window.end - window.first, duplicated=len(measured) - len(firsts))
