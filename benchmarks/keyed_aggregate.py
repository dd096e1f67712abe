"""A keyed aggregate in real time: Spark's own defaults against Tailrace's session, in one run.

Same broker, query, master, shuffle partitions, load and probe. Each lane has a Spark of its own, in a process of its
own, because the shuffle's timer is fixed when a context starts; the lanes alternate, so that a busy machine is shared
fairly.
Writes `benchmarks/results/keyed-aggregate.json`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tailrace.demo.fraud import pipeline as fraud
from tailrace.kafka.broker import own_broker
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import create_topic
from tailrace.latency.clock import Clock
from tailrace.latency.schedule import NS_PER_S
from tailrace.traffic.load import Load
from tailrace.traffic.probe import Probe

PARTITIONS = 2
MASTER = "local[4]"
RESULT = Path(__file__).parent / "results" / "keyed-aggregate.json"


def main() -> None:
    """Run both lanes in turn and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warmup", type=float, default=15)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--query", nargs=4, metavar=("LANE", "SERVERS", "TOPIC", "CHECKPOINT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        run_query(*options.query)
        return
    rounds: dict[str, list[dict[str, Any]]] = {"spark defaults": [], "tailrace": []}
    with own_broker(print) as broker:
        for number in range(options.rounds):
            order = list(rounds) if number % 2 == 0 else list(reversed(rounds))
            for lane in order:
                result = measure(broker.bootstrap_servers, lane, number, options)
                rounds[lane].append(result)
                print(f"round {number + 1}  {lane:<15} p50 {result['p50_ms']:>8.2f}   p99 {result['p99_ms']:>8.2f} ms")
    medians = {lane: statistics.median(each["p50_ms"] for each in results) for lane, results in rounds.items()}
    ratio = medians["spark defaults"] / medians["tailrace"]
    print(f"median p50: Spark's defaults {medians['spark defaults']:.2f} ms, Tailrace {medians['tailrace']:.2f} ms")
    print(f"{ratio:.1f} times lower")
    RESULT.parent.mkdir(exist_ok=True)
    settings = {key: getattr(options, key) for key in ("rounds", "seconds", "warmup", "rate")}
    machine = {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    report = {"settings": settings | {"master": MASTER, "partitions": PARTITIONS}, "machine": machine}
    RESULT.write_text(json.dumps(report | {"lanes": rounds, "p50_ratio": round(ratio, 2)}, indent=2) + "\n")


def measure(servers: str, lane: str, number: int, options: argparse.Namespace) -> dict[str, Any]:
    """One lane of one round, between topics of its own."""
    config = client_config(servers, {})
    if config is None:
        raise AssertionError("plain options always translate")
    name = f"{lane.replace(' ', '-')}-{number}"
    for topic in (f"in-{name}", f"out-{name}"):
        create_topic(config, topic, PARTITIONS)
    clock = Clock.starting_at(time.time_ns(), time.monotonic_ns)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
        command = [sys.executable, __file__, "--query", lane, servers, name, str(Path(folder) / "checkpoint")]
        query = subprocess.Popen(command, stdin=subprocess.PIPE)
        limit_s = 120 + options.warmup + options.seconds
        with (
            Probe(config, f"out-{name}", clock=clock) as probe,
            Load(config, f"in-{name}", rate_per_s=options.rate, clock=clock, limit_s=limit_s) as load,
        ):
            probe.watch(lambda snapshot: snapshot.arrived > 0, lambda _: None)
            first_ns = clock.now_ns() + round(options.warmup * NS_PER_S)
            end_ns = first_ns + round(options.seconds * NS_PER_S)
            load.end_at(end_ns)
            probe.watch(lambda _: clock.now_ns() >= end_ns, lambda _: None)
            load.report(30)
            first, end = load.plan.count_until(first_ns), load.plan.count_until(end_ns)
            result = probe.result(first, end, timeout_s=15, on_snapshot=lambda _: None)
        query.communicate(timeout=60)
    return dict(result.as_json())


def run_query(lane: str, servers: str, name: str, checkpoint: str) -> None:
    """The query itself, until standard input closes: a running total per card, one update per payment."""
    import tailrace as tr
    from tailrace.spark_session import end_session

    conf = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.ui.enabled": "false"}
    if lane == "spark defaults":
        # Spark's own value, set by hand: a user's value wins over Tailrace's. The settings of a query's own session
        # are not there either, because this lane starts its query without Tailrace.
        conf["spark.shuffle.streaming.networkBufferMaxWaitTimeMs"] = "50"
    spark = tr.session(master=MASTER, conf=conf)
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"in-{name}")
        .option("startingOffsets", "earliest")
        .load()
    )
    payments = raw.selectExpr(f"from_json(cast(value as string), '{fraud.sources[0].schema}') as p").select("p.*")
    totals = payments.groupBy("card").agg(
        *(_last(column) for column in ("payment_id", "sent_ns")),
    )
    writer = (
        totals.selectExpr("card as key", "to_json(struct(card, payment_id, sent_ns)) as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"out-{name}")
        .option("checkpointLocation", checkpoint)
        .queryName(f"totals-{name}")
        .outputMode("update")
    )
    if lane == "spark defaults":
        running: Any = writer.trigger(realTime="5 minutes").start()
    else:
        running = tr.start(writer, "realtime", checkpoint=checkpoint)
    sys.stdin.read()
    running.stop()
    end_session()


def _last(column: str) -> Any:
    from pyspark.sql import functions as F

    return F.max(column).alias(column)


if __name__ == "__main__":
    main()
