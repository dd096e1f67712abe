"""Measure how soon a pipeline works: from `tailrace run` to its first output, and a first record's wait for Python.

Part one starts `tailrace run` on a topic that already holds a record, and stops the clock when an ordinary consumer has
the result. `--also PYTHON` names the interpreter of another installation to compare with; the two alternate.
Part two starts a query, waits until it is confirmed, sends one record and times its result: once for a built-in
expression and once for each kind of Python function. Writes `benchmarks/results/start-time.json`.
"""

import argparse
import json
import os
import platform
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic

RESULT = Path(__file__).parent / "results" / "start-time.json"
TIMEOUT_S = 120.0
STEPS = {
    "builtin": ("", 'F.col("n") + 1'),
    "udf": ('@F.udf("long")\ndef step(n):\n    return n + 1\n', 'step("n")'),
    "pandas_udf": ('@F.pandas_udf("long")\ndef step(n: pd.Series) -> pd.Series:\n    return n + 1\n', 'step("n")'),
}
PIPELINE = """\
import pandas as pd
import tailrace as tr
from pyspark.sql import functions as F

{function}

def transform(rows):
    return rows.withColumn("m", {call})


pipeline = tr.Pipeline(
    name="{name}",
    source=tr.KafkaSource("{source}", schema="n long", starting="earliest"),
    transform=transform,
    sink=tr.KafkaSink("{sink}"),
)
"""


def main() -> None:
    """Measure both parts and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--also", metavar="PYTHON", help="an interpreter with another Tailrace to compare with")
    parser.add_argument("--mode", choices=["realtime", "microbatch"], default="realtime")
    parser.add_argument("--parts", choices=["run", "first", "both"], default="both")
    options = parser.parse_args()
    installations = {"this": sys.executable} | ({"other": options.also} if options.also else {})
    report: dict[str, Any] = {
        "machine": {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "runs": options.runs,
        "mode": options.mode,
    }
    with temporary_broker(print) as broker, tempfile.TemporaryDirectory() as folder:
        client = plain_client(broker.bootstrap_servers)
        if options.parts != "first":
            report["first_output_s"] = _first_outputs(options, installations, client, Path(folder))
        if options.parts != "run":
            report["first_record_ms"] = {
                label: _first_records(options, python, client, Path(folder), label)
                for label, python in installations.items()
            }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")


def _first_outputs(
    options: argparse.Namespace, installations: dict[str, str], client: ClientConfig, folder: Path
) -> dict[str, dict[str, list[float]]]:
    """The seconds from the command to the first output, by installation and step."""
    seconds: dict[str, dict[str, list[float]]] = {label: {} for label in installations}
    for number in range(options.runs):
        for step in ("builtin", "udf"):
            for label, python in installations.items():
                with _pipeline(client, folder, step) as (file, _, sink):
                    took = _seconds_to_output([python, "-m", "tailrace", "run", str(file)], options.mode, client, sink)
                seconds[label].setdefault(step, []).append(round(took, 2))
                print(f"run {number + 1}  {label:<6} {step:<8} first output after {took:6.2f} s", flush=True)
    for label, steps in seconds.items():
        for step, each in steps.items():
            print(f"{label:<6} {step:<8} median {statistics.median(each):6.2f} s  of {sorted(each)}")
    return seconds


def _seconds_to_output(command: list[str], mode: str, client: ClientConfig, sink: str) -> float:
    consumer = Consumer({**client, "group.id": sink, "enable.auto.commit": False})
    consumer.assign([TopicPartition(sink, 0, 0)])
    began = time.monotonic()
    arguments = ["--mode", mode, "--bootstrap-servers", str(client["bootstrap.servers"])]
    running = subprocess.Popen([*command, *arguments], cwd=Path(command[-1]).parent, stderr=subprocess.PIPE, text=True)
    try:
        return _await_record(consumer, began)
    finally:
        running.send_signal(signal.SIGINT)
        _, words = running.communicate(timeout=60)
        if running.returncode != 0:
            print(words)
        consumer.close()


def _await_record(consumer: Consumer, began: float) -> float:
    while time.monotonic() - began < TIMEOUT_S:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return time.monotonic() - began
    raise TimeoutError(f"no output within {TIMEOUT_S:g} s")


@contextmanager
def _pipeline(client: ClientConfig, folder: Path, step: str, *, records: int = 1) -> Iterator[tuple[Path, str, str]]:
    """A pipeline file, its source topic with so many records in it, and its sink topic."""
    name = f"start-{secrets.token_hex(4)}"
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        create_topic(client, topic, 1)
    _send(client, source, records)
    function, call = STEPS[step]
    file = folder / name / "pipeline.py"
    file.parent.mkdir()
    file.write_text(PIPELINE.format(function=function, call=call, name=name, source=source, sink=sink))
    yield file, source, sink


def _send(client: ClientConfig, topic: str, count: int) -> None:
    producer = Producer(dict(client))
    for number in range(count):
        producer.produce(topic, json.dumps({"n": number}).encode())
    producer.flush(20)


def _first_records(
    options: argparse.Namespace, python: str, client: ClientConfig, folder: Path, label: str
) -> dict[str, list[float]]:
    """The milliseconds that the first record of a confirmed query takes, by step."""
    waits: dict[str, list[float]] = {step: [] for step in STEPS}
    for number in range(options.runs):
        for step in STEPS:
            with _pipeline(client, folder, step, records=0) as (file, source, sink):
                child = subprocess.run(
                    [python, str(Path(__file__)), "--child", str(file), source, sink, str(client["bootstrap.servers"])],
                    cwd=file.parent,
                    capture_output=True,
                    text=True,
                    check=True,
                )
            wait = float(child.stdout.strip().splitlines()[-1])
            waits[step].append(wait)
            print(f"run {number + 1}  {label:<6} {step:<10} first record after {wait:8.1f} ms", flush=True)
    for step, each in waits.items():
        print(f"{label:<6} {step:<10} median {statistics.median(each):8.1f} ms  of {sorted(each)}")
    return waits


def _child(file: str, source: str, sink: str, servers: str) -> None:
    """Start a query, wait a second, send one record and print the milliseconds to its result."""
    import tailrace as tr
    from tailrace.prepare.loader import load_pipeline

    client = plain_client(servers)
    consumer = Consumer({**client, "group.id": sink, "enable.auto.commit": False, "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(sink, 0, 0)])
    consumer.poll(0.5)
    producer = Producer(dict(client))
    producer.list_topics(source, timeout=10)
    with tr.start(load_pipeline(file), mode="realtime", bootstrap_servers=servers):
        time.sleep(1)
        began = time.monotonic()
        producer.produce(source, b'{"n": 1}')
        producer.flush(20)
        print(_await_record(consumer, began) * 1000)
    consumer.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:6])
    else:
        main()
