"""Run the demo."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.demo.lanes import floor_lane, payments_plan, pipeline_lane
from tailrace.errors import counted
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.measure.screen import Screen
from tailrace.pipeline import Mode
from tailrace.prepare.loader import load_pipeline
from tailrace.prepare.options import RunOptions
from tailrace.report.result import LaneResult
from tailrace.spark_session import pin_context, replaceable_session

PIPELINE_FILE = Path(__file__).parent / "fraud.py"
TITLES = {"floor": "Kafka alone", "realtime": "real time", "microbatch": "micro-batch"}


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
    screen.say("Starting a Kafka broker of its own ...")
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
