"""What lineage costs: the demo's pipeline in real time with and without it.

One broker, one Spark, the same load and probe. The two lanes alternate, and each has its own topics and checkpoint.
"""

import os
import platform
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tailrace.demo.fraud import pipeline as fraud
from tailrace.demo.lanes import payments_plan, pipeline_lane
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.measure.lane import Announce
from tailrace.measure.screen import ms
from tailrace.prepare.options import RunOptions
from tailrace.spark_session import end_session, session

if TYPE_CHECKING:
    from tailrace.report.result import LaneResult

PARTITIONS = 2


@dataclass(frozen=True)
class LineageOptions:
    """The options of the study."""

    rounds: int = 4
    seconds: float = 20
    warmup: float = 10
    rate: float = 2000


def measure_lineage(options: LineageOptions, announce: Announce) -> dict[str, Any]:
    """Run both lanes several times; return every run and the difference of the medians."""
    rounds: dict[str, list[LaneResult]] = {"on": [], "off": []}
    with temporary_broker(announce) as broker:
        client = plain_client(broker.bootstrap_servers)
        plan = payments_plan(options.rate, options.seconds, options.warmup)
        session("bench-lineage", master=f"local[{PARTITIONS}]", conf={"spark.ui.enabled": "false"})
        # The first round also compiles the hot code of both JVMs, so it does not count.
        for number in range(options.rounds + 1):
            for lane in list(rounds) if number % 2 else list(reversed(rounds)):
                run = RunOptions(
                    bootstrap_servers=broker.bootstrap_servers, checkpoint=broker.scratch / f"{lane}-{number}"
                )
                pipeline = replace(fraud, lineage=lane == "on")
                topics = (f"{lane}-{number}", PARTITIONS)
                result = pipeline_lane(plan, client, topics, pipeline, run, lambda _: None)
                announce(f"round {number}  lineage {lane:<3}  p50 {ms(result.p50_ms)}   p99 {ms(result.p99_ms)} ms")
                if number > 0:
                    rounds[lane].append(result)
        end_session()
    medians = {
        lane: statistics.median(each.p50_ms for each in results if each.p50_ms is not None)
        for lane, results in rounds.items()
    }
    difference = medians["on"] - medians["off"]
    announce(
        f"median p50: with lineage {medians['on']:.2f} ms, without {medians['off']:.2f} ms, "
        f"difference {difference:+.2f} ms"
    )
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "warmup", "rate")}
    return {
        "settings": settings | {"partitions": PARTITIONS},
        "machine": {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "lanes": {lane: [each.as_json() for each in results] for lane, results in rounds.items()},
        "p50_difference_ms": round(difference, 3),
    }
