"""What lineage costs: the demo's pipeline in real time with and without it, in one run.

One broker, one Spark, the same load and probe; the lanes alternate, and each has topics and a checkpoint of its own.
Writes `benchmarks/results/lineage.json`.
"""

import argparse
import json
import os
import platform
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailrace.demo.fraud import pipeline as fraud
from tailrace.demo.lanes import payments_plan, pipeline_lane
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.prepare.options import RunOptions
from tailrace.spark_session import end_session, session

PARTITIONS = 2
RESULT = Path(__file__).parent / "results" / "lineage.json"


def main() -> None:
    """Run both lanes in turn and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warmup", type=float, default=10)
    parser.add_argument("--rate", type=float, default=2000)
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, Any]]] = {"on": [], "off": []}
    with temporary_broker(print) as broker:
        client = plain_client(broker.bootstrap_servers)
        plan = payments_plan(options.rate, options.seconds, options.warmup)
        session("bench-lineage", master=f"local[{PARTITIONS}]", conf={"spark.ui.enabled": "false"})
        # The first round of all also compiles both JVMs' hot code; it is measured like the others and not kept.
        for number in range(options.rounds + 1):
            for lane in list(rounds) if number % 2 else list(reversed(rounds)):
                run = RunOptions(
                    bootstrap_servers=broker.bootstrap_servers, checkpoint=broker.scratch / f"{lane}-{number}"
                )
                here = replace(fraud, lineage=lane == "on")
                named = (f"{lane}-{number}", PARTITIONS)
                result = dict(pipeline_lane(plan, client, named, here, run, lambda _: None).as_json())
                print(
                    f"round {number}  lineage {lane:<3}  p50 {result['p50_ms']:>7.2f}   p99 {result['p99_ms']:>8.2f} ms"
                )
                if number > 0:
                    rounds[lane].append(result)
        end_session()
    medians = {lane: statistics.median(each["p50_ms"] for each in results) for lane, results in rounds.items()}
    difference = medians["on"] - medians["off"]
    print(f"median p50: with {medians['on']:.2f} ms, without {medians['off']:.2f} ms, difference {difference:+.2f} ms")
    settings = {key: getattr(options, key) for key in ("rounds", "seconds", "warmup", "rate")}
    machine = {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    report = {"settings": settings | {"partitions": PARTITIONS}, "machine": machine, "lanes": rounds}
    RESULT.write_text(json.dumps(report | {"p50_difference_ms": round(difference, 3)}, indent=2) + "\n")


if __name__ == "__main__":
    main()
