"""Measure partitions that share tasks: records beside a backlog, and partitions without any record.

Part one reads 24 partitions with 4 tasks, and for comparison with a task each. A million records become visible in one
partition at once, and the latency of records in the other partitions is taken until the million is read: of those that
share its task, and of those in other tasks. Part two takes the CPU time of 100 partitions
without records on 4 tasks. What shared tasks cost under an ordinary load: `tailrace bench study shared-tasks`.
Writes `benchmarks/results/backlog.json`.
"""

import argparse
import json
import os
import platform
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

import tailrace as tr
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic
from tailrace.running.query import RunningQuery
from tailrace.spark_session import end_session

RESULT = Path(__file__).parent / "results" / "backlog.json"
TASKS = 4
PARTITIONS = 24
BACKLOG = 1_000_000
PER_SECOND = 500
SHARE = "of the same task"
OTHERS = "of other tasks"
WARMUP_S = 20.0
IDLE_PARTITIONS = 100
IDLE_S = 30.0
TIMEOUT_S = 120.0


def main() -> None:
    """Measure the parts and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", choices=["backlog", "idle", "both"], default="both")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--baselines", type=int, default=3, help="runs with a task per partition")
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    with temporary_broker(print) as broker, tempfile.TemporaryDirectory() as folder:
        client = plain_client(broker.bootstrap_servers)
        if options.parts != "idle":
            shared = [beside_a_backlog(client, Path(folder), TASKS) for _ in range(options.runs)]
            separate = [beside_a_backlog(client, Path(folder), PARTITIONS) for _ in range(options.baselines)]
            report["beside_a_backlog"] = {
                "partitions": PARTITIONS, "backlog": BACKLOG, "others_per_s": PER_SECOND,
                "shared": summary(TASKS, shared), "separate": summary(PARTITIONS, separate),
            }  # fmt: skip
        if options.parts != "backlog":
            report["idle"] = idle(client, Path(folder), broker.pid)
    RESULT.write_text(json.dumps(report, indent=2) + "\n")


def summary(tasks: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return runs with the median of what they found."""
    medians = {
        which: statistics.median(run["during"][which]["p99_ms"] for run in runs)
        for which in (SHARE, OTHERS)
        if all(which in run["during"] for run in runs)
    }
    return {"tasks": tasks, "p99_ms_median": medians, "runs": runs}


@contextmanager
def query(
    client: ClientConfig, folder: Path, partitions: int, tasks: int = TASKS
) -> Iterator[tuple[RunningQuery, str, str]]:
    """A running query, its source and the sink of the records that are measured."""
    name = f"shared-{secrets.token_hex(4)}"
    source, sink = f"{name}-in", f"{name}-out"
    for topic, count in ((source, partitions), (sink, 1), (f"{sink}-backlog", 1)):
        create_topic(client, topic, count)
    pipeline = tr.Pipeline(
        name,
        tr.KafkaSource(
            source, "sent_ns long, number int", starting="earliest", options={"kafka.isolation.level": "read_committed"}
        ),
        lambda rows: rows.selectExpr("sent_ns", "number", f"if(sent_ns = 0, '{sink}-backlog', '{sink}') as topic"),
        tr.KafkaSink(topic_column="topic"),
        malformed="drop",
    )
    servers = str(client["bootstrap.servers"])
    try:
        with tr.start(
            pipeline, "realtime", bootstrap_servers=servers, checkpoint=folder / name, tasks=tasks
        ) as running:
            yield running, source, sink
    finally:
        end_session()


def beside_a_backlog(client: ClientConfig, folder: Path, tasks: int) -> dict[str, Any]:
    """Return the latency of the other partitions before and during a backlog on one."""
    with query(client, folder, PARTITIONS, tasks) as (running, source, sink):
        hidden = Producer({**client, "transactional.id": source, "transaction.timeout.ms": 300_000, "linger.ms": 50})
        hidden.init_transactions(TIMEOUT_S)
        hidden.begin_transaction()
        for number in range(BACKLOG):
            while True:
                try:
                    hidden.produce(source, b'{"sent_ns": 0}', partition=0)
                    break
                except BufferError:
                    hidden.poll(0.1)
            if number % 10_000 == 0:
                hidden.poll(0)
        hidden.flush(TIMEOUT_S)
        with Others(client, source, sink, tasks) as others:
            time.sleep(WARMUP_S)
            before_ns = time.time_ns()
            time.sleep(WARMUP_S / 2)
            began_ns, began = time.time_ns(), time.monotonic()
            hidden.commit_transaction(TIMEOUT_S)
            await_read(running)
            took_s, ended_ns = time.monotonic() - began, time.time_ns()
        result = {
            "before": others.latency(before_ns, began_ns),
            "during": others.latency(began_ns, ended_ns),
            "backlog_read_in_s": round(took_s, 1),
        }
    print(tasks, "tasks:", json.dumps(result), flush=True)
    return result


def await_read(running: RunningQuery) -> None:
    """Wait until the backlog is read."""
    deadline = time.monotonic() + TIMEOUT_S
    while next(each.offset for each in running.positions() if each.partition == 0) < BACKLOG:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the backlog was not read within {TIMEOUT_S:g} s")
        time.sleep(0.2)


class Others:
    """A load on the partitions without a backlog, and the latency of its results."""

    def __init__(self, client: ClientConfig, source: str, sink: str, tasks: int) -> None:
        self._client, self._source, self._sink, self._tasks = client, source, sink, tasks
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]
        self._latencies: list[tuple[int, int, int]] = []

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(2)  # the last results
        self._ended.set()
        for each in self._threads:
            each.join()

    def latency(self, first_ns: int, end_ns: int) -> dict[str, dict[str, float]]:
        """Return the percentiles of the records that were due in this time, by what shares the task of partition 0."""
        within: dict[str, list[int]] = {}
        for due, took, number in self._latencies:
            if first_ns <= due < end_ns:
                within.setdefault(OTHERS if number % self._tasks else SHARE, []).append(took)
        return {which: percentiles(sorted(each)) for which, each in within.items()}

    def _send(self) -> None:
        producer = Producer({**self._client, "linger.ms": 0, "acks": "all"})
        due_ns, number = time.time_ns(), 0
        while not self._ended.is_set():
            if (wait_ns := due_ns - time.time_ns()) > 0:
                time.sleep(wait_ns / 1e9)
            partition = 1 + number % (PARTITIONS - 1)
            producer.produce(self._source, b'{"sent_ns": %d, "number": %d}' % (due_ns, partition), partition=partition)
            producer.poll(0)
            number += 1
            due_ns += 1_000_000_000 // PER_SECOND
        producer.flush(20)

    def _receive(self) -> None:
        settings = {"group.id": self._sink, "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        consumer = Consumer({**self._client, **settings})
        consumer.assign([TopicPartition(self._sink, 0, 0)])
        while not self._ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                record = json.loads(message.value() or b"")
                self._latencies.append((record["sent_ns"], time.time_ns() - record["sent_ns"], record["number"]))
        consumer.close()


def percentiles(sorted_ns: list[int]) -> dict[str, float]:
    """Return the percentiles of sorted latencies, in milliseconds."""
    return {
        "records": len(sorted_ns),
        "p50_ms": round(sorted_ns[len(sorted_ns) // 2] / 1e6, 2),
        "p99_ms": round(sorted_ns[int(len(sorted_ns) * 0.99)] / 1e6, 2),
        "max_ms": round(sorted_ns[-1] / 1e6, 2),
    }


def idle(client: ClientConfig, folder: Path, broker_pid: int) -> dict[str, Any]:
    """Return the CPU time of partitions without records, in milliseconds per second."""
    with query(client, folder, IDLE_PARTITIONS) as (_running, _, _):
        time.sleep(WARMUP_S)
        brokers = tree(broker_pid)
        sparks = [each for each in tree(os.getpid()) if each.pid not in {broker.pid for broker in brokers}]
        before = {name: cpu_s(each) for name, each in (("spark", sparks), ("broker", brokers))}
        time.sleep(IDLE_S)
        used = {name: cpu_s(each) - before[name] for name, each in (("spark", sparks), ("broker", brokers))}
    result = {
        "partitions": IDLE_PARTITIONS, "tasks": TASKS, "seconds": IDLE_S,
        "cpu_ms_per_s": {name: round(1000 * each / IDLE_S, 1) for name, each in used.items()},
    }  # fmt: skip
    print(json.dumps(result), flush=True)
    return result


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all below it."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> float:
    """Return the CPU time of processes."""
    times = [each.cpu_times() for each in processes if each.is_running()]
    return float(sum(each.user + each.system for each in times))


if __name__ == "__main__":
    main()
