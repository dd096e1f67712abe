"""Measure how long a request to end a batch takes, here and on the executors of a cluster.

A query without state reads two partitions with 1,000 records a second. `running.checkpoint()` is called twice a
second, and the time is taken from the call until the last task of the batch has ended, its output acknowledged, as
Spark's driver reports it. Writes `benchmarks/results/batch-end.json`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import tailrace as tr
from tailrace.cluster.cluster import temporary_cluster
from tailrace.engine import BatchTimes
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic
from tailrace.spark_session import end_session

RESULT = Path(__file__).parent / "results" / "batch-end.json"
PER_SECOND = 1000
EVERY_S = 0.5
WARMUP = 5


def main() -> None:
    """Measure each place and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--places", choices=["local", "cluster", "both"], default="both")
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    with temporary_broker(print) as broker:
        client = plain_client(broker.bootstrap_servers)
        if options.places != "cluster":
            report["local"] = measured(client, "local[4]", options.requests)
        if options.places != "local":
            with temporary_cluster(print) as cluster:
                report["cluster of two workers"] = measured(client, cluster.master_url, options.requests)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


def measured(client: ClientConfig, master: str, requests: int) -> dict[str, Any]:
    """Return the milliseconds from the request to the end of the batch, and of the pause."""
    name = "ends-local" if master.startswith("local") else "ends-cluster"
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        create_topic(client, topic, 2)
    pipeline = tr.Pipeline(
        name, tr.KafkaSource(source, "n long"), lambda rows: rows, tr.KafkaSink(sink), malformed="drop"
    )
    servers, ended = str(client["bootstrap.servers"]), threading.Event()
    load = threading.Thread(target=send, args=(client, source, ended))
    took_ms, pauses_ms = [], []
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            tr.start(pipeline, "realtime", bootstrap_servers=servers, checkpoint=folder, master=master) as running,
        ):
            load.start()
            times = BatchTimes(running.query)
            for number in range(WARMUP + requests):
                time.sleep(EVERY_S)
                asked_ms = time.time() * 1000
                saved = running.checkpoint()
                batch = times.of(saved.number) if saved.number is not None else None
                if number >= WARMUP and batch is not None and batch.last_end and saved.pause_ms is not None:
                    took_ms.append(batch.last_end - asked_ms)
                    pauses_ms.append(saved.pause_ms)
            ended.set()
            load.join()
            times.close()
    finally:
        ended.set()
        end_session()
    result = {
        "requests": len(took_ms),
        "end_ms": figures(took_ms),
        "pause_ms": figures(pauses_ms),
    }
    print(name, json.dumps(result), flush=True)
    return result


def figures(values: list[float]) -> dict[str, float]:
    """Return the median and the longest."""
    return {"median": round(statistics.median(values), 1), "longest": round(max(values), 1)}


def send(client: ClientConfig, topic: str, ended: threading.Event) -> None:
    """Send records to both partitions until the end."""
    producer, number = Producer({**client, "linger.ms": 0}), 0
    while not ended.wait(0.01):
        for _ in range(PER_SECOND // 100):
            producer.produce(topic, b'{"n": %d}' % number, partition=number % 2)
            number += 1
        producer.poll(0)
    producer.flush(20)


if __name__ == "__main__":
    main()
