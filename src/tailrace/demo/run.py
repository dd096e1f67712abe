"""The demo from start to end."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.demo.lanes import Plan, floor_lane, pipeline_lane
from tailrace.demo.screen import Screen
from tailrace.kafka.broker import own_broker
from tailrace.latency.lane import LaneResult
from tailrace.pipeline import Mode
from tailrace.runtime.loader import load_pipeline
from tailrace.runtime.options import RunOptions
from tailrace.spark_session import session

PIPELINE_FILE = Path(__file__).parent / "fraud.py"


@dataclass(frozen=True)
class DemoOptions:
    """What a user may change."""

    seconds: float = 30.0
    warmup_s: float = 25.0
    rate_per_s: float = 2000.0
    partitions: int = 2
    checkpoint_every: str = "5m"
    trigger_every: str = "500ms"


def run_demo(options: DemoOptions, screen: Screen) -> dict[str, LaneResult]:
    """Run all lanes and return their results, in the order they are shown in.

    The real-time lane comes before the micro-batch one, so a warm JVM is to the advantage of micro-batch.
    """
    pipeline = load_pipeline(str(PIPELINE_FILE))
    results: dict[str, LaneResult] = {}
    # Refused now rather than after a minute of measuring.
    for mode in Mode:
        RunOptions(mode, checkpoint_every=options.checkpoint_every, trigger_every=options.trigger_every)
    screen.say("Starting a Kafka broker of its own ...")
    with own_broker(screen.say) as broker:
        plan = Plan(
            broker.bootstrap_servers,
            options.rate_per_s,
            options.seconds,
            options.warmup_s,
            options.partitions,
        )
        screen.say(
            f"{options.rate_per_s:,.0f} payments/s, {options.partitions} partitions, "
            f"{options.seconds:g} s measured per lane after {options.warmup_s:g} s of warm-up"
        )
        results["floor"] = floor_lane(plan, partial(screen.show, "floor"))
        screen.done("floor", results["floor"])
        spark = session(
            "tailrace-demo",
            master=f"local[{max(options.partitions, 2)}]",
            conf={"spark.ui.enabled": "false"},
            announce=screen.say,
        )
        try:
            for mode in (Mode.REALTIME, Mode.MICROBATCH):
                lane = str(mode)
                run = RunOptions(
                    mode,
                    broker.bootstrap_servers,
                    broker.scratch / lane,
                    options.checkpoint_every,
                    options.trigger_every,
                )
                results[lane] = pipeline_lane(plan, lane, pipeline, run, partial(screen.show, lane))
                screen.done(lane, results[lane])
        finally:
            spark.stop()
    return {lane: results[lane] for lane in ("floor", "microbatch", "realtime")}
