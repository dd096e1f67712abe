"""Measure how soon a pipeline works: its first output, its first record, and its first new output after a crash.

- `run`: starts `tailrace run` on a topic that already holds a record, and stops the clock when an ordinary consumer has
  the result. `--also COMMIT` alternates with another version of Tailrace, on this interpreter.
- `record`: starts a query, waits until it is confirmed, sends one record and times its result: once for a built-in
  expression and once for each kind of Python function.
- `crash`: kills `tailrace run` with all its processes after its first output, sends another record, runs the same
  command again and stops the clock when the consumer has the result of that record.

Writes `benchmarks/results/start-time.json`; parts that are not measured stay as they are.
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import ClientConfig, create_topic

RESULT = Path(__file__).parent / "results" / "start-time.json"
TIMEOUT_S = 120.0
PARTS = ["run", "record", "crash"]
TAILRACE = [sys.executable, "-m", "tailrace"]
STEPS = {
    "builtin": ("", 'F.col("n") + 1'),
    "udf": ('@F.udf("long")\ndef step(n):\n    return n + 1\n', 'step("n")'),
    "pandas_udf": ('@F.pandas_udf("long")\ndef step(n: pd.Series) -> pd.Series:\n    return n + 1\n', 'step("n")'),
}
RUN_STEPS = ("builtin", "udf")
"""What `tailrace run` is measured with."""
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
    """Measure the parts and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="of the parts run and crash")
    parser.add_argument("--record-runs", type=int, default=3, help="of the part record")
    parser.add_argument("--also", metavar="COMMIT", help="another version to compare the part run with")
    parser.add_argument("--mode", choices=["realtime", "microbatch"], default="realtime")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    machine = {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    report |= {"machine": machine, "mode": options.mode}
    runs = report.setdefault("runs", {})
    with temporary_broker(print) as broker, tempfile.TemporaryDirectory() as folder:
        client = plain_client(broker.bootstrap_servers)
        if "run" in options.parts:
            with _versions(options.also, Path(folder)) as versions:
                report["first_output_s"] = _first_outputs(options, versions, client, Path(folder))
            runs["first_output"] = options.runs
            report.pop("note", None)
            if options.also:
                other = _git("log", "-1", "--format=%h (%s)", options.also)
                report["note"] = f"'other' is the same pipeline on commit {other}; first outputs alternate"
        if "record" in options.parts:
            report["first_record_ms"] = {"this": _first_records(options, client, Path(folder))}
            runs["first_record"] = options.record_runs
        if "crash" in options.parts:
            report["first_new_output_after_crash_s"] = {"this": _restarts(options, client, Path(folder))}
            runs["first_new_output_after_crash"] = options.runs
    RESULT.write_text(json.dumps(report, indent=2) + "\n")


@contextmanager
def _versions(also: str | None, folder: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the environment in which each version of Tailrace runs."""
    this = dict(os.environ)
    if also is None:
        yield {"this": this}
        return
    tree = folder / "other"
    _git("worktree", "add", "--detach", str(tree), also)
    try:
        other = this | {"PYTHONPATH": str(tree / "src")}
        subprocess.run([*TAILRACE, "doctor", "--fix"], cwd=folder, env=other, check=True)
        yield {"this": this, "other": other}
    finally:
        _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _first_outputs(
    options: argparse.Namespace, versions: dict[str, dict[str, str]], client: ClientConfig, folder: Path
) -> dict[str, dict[str, list[float]]]:
    """The seconds from the command to the first output, by version and step."""
    seconds: dict[str, dict[str, list[float]]] = {label: {} for label in versions}
    for number in range(options.runs):
        for step in RUN_STEPS:
            for label, environment in versions.items():
                with (
                    _pipeline(client, folder, step) as (file, _, sink),
                    _consumer(client, sink) as consumer,
                    _run(file, options.mode, client, environment) as began,
                ):
                    took = _await_record(consumer, began)
                seconds[label].setdefault(step, []).append(round(took, 2))
                print(f"run {number + 1}  {label:<6} {step:<8} first output after {took:6.2f} s", flush=True)
    for label, steps in seconds.items():
        for step, each in steps.items():
            print(f"{label:<6} {step:<8} median {statistics.median(each):6.2f} s  of {sorted(each)}")
    return seconds


def _restarts(options: argparse.Namespace, client: ClientConfig, folder: Path) -> dict[str, list[float]]:
    """The seconds from the command after a crash to the first new output, by step."""
    seconds: dict[str, list[float]] = {step: [] for step in RUN_STEPS}
    for number in range(options.runs):
        for step in RUN_STEPS:
            with _pipeline(client, folder, step) as (file, source, sink), _consumer(client, sink) as consumer:
                with _run(file, options.mode, client, dict(os.environ), ends_with=signal.SIGKILL) as began:
                    _await_record(consumer, began)
                _send(client, source, [1])
                with _run(file, options.mode, client, dict(os.environ)) as began:
                    took = _await_record(consumer, began, of=1)
            seconds[step].append(round(took, 2))
            print(f"run {number + 1}  {step:<8} first new output after a crash after {took:6.2f} s", flush=True)
    for step, each in seconds.items():
        print(f"crash  {step:<8} median {statistics.median(each):6.2f} s  of {sorted(each)}")
    return seconds


@contextmanager
def _run(
    file: Path,
    mode: str,
    client: ClientConfig,
    environment: dict[str, str],
    ends_with: signal.Signals = signal.SIGINT,
) -> Iterator[float]:
    """Run a pipeline in a process group of its own, with Spark's JVM; yield when it began, and end it with a signal."""
    arguments = ["--mode", mode, "--bootstrap-servers", str(client["bootstrap.servers"])]
    began = time.monotonic()
    running = subprocess.Popen(
        [*TAILRACE, "run", str(file), *arguments],
        cwd=file.parent,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield began
    finally:
        if ends_with is signal.SIGKILL:
            os.killpg(running.pid, ends_with)
        else:
            running.send_signal(ends_with)
        _, words = running.communicate(timeout=60)
        if running.returncode not in (0, -signal.SIGKILL):
            print(words)


@contextmanager
def _consumer(client: ClientConfig, topic: str) -> Iterator[Consumer]:
    consumer = Consumer({**client, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def _await_record(consumer: Consumer, began: float, of: int | None = None) -> float:
    """Return the seconds until a result comes, of any record or of the one with this number."""
    while time.monotonic() - began < TIMEOUT_S:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and of in (None, json.loads(message.value() or b"{}")["n"]):
            return time.monotonic() - began
    raise TimeoutError(f"no output within {TIMEOUT_S:g} s")


@contextmanager
def _pipeline(client: ClientConfig, folder: Path, step: str, *, records: int = 1) -> Iterator[tuple[Path, str, str]]:
    """A pipeline file, its source topic with so many records in it, and its sink topic."""
    name = f"start-{secrets.token_hex(4)}"
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        create_topic(client, topic, 1)
    _send(client, source, range(records))
    function, call = STEPS[step]
    file = folder / name / "pipeline.py"
    file.parent.mkdir()
    file.write_text(PIPELINE.format(function=function, call=call, name=name, source=source, sink=sink))
    yield file, source, sink


def _send(client: ClientConfig, topic: str, numbers: Iterable[int]) -> None:
    producer = Producer(dict(client))
    for number in numbers:
        producer.produce(topic, json.dumps({"n": number}).encode())
    producer.flush(20)


def _first_records(options: argparse.Namespace, client: ClientConfig, folder: Path) -> dict[str, list[float]]:
    """The milliseconds that the first record of a confirmed query takes, by step."""
    waits: dict[str, list[float]] = {step: [] for step in STEPS}
    script, servers = str(Path(__file__)), str(client["bootstrap.servers"])
    for number in range(options.record_runs):
        for step in STEPS:
            with _pipeline(client, folder, step, records=0) as (file, source, sink):
                child = subprocess.run(
                    [sys.executable, script, "--child", str(file), source, sink, servers],
                    cwd=file.parent,
                    capture_output=True,
                    text=True,
                    check=True,
                )
            wait = float(child.stdout.strip().splitlines()[-1])
            waits[step].append(wait)
            print(f"run {number + 1}  {step:<10} first record after {wait:8.1f} ms", flush=True)
    for step, each in waits.items():
        print(f"{step:<10} median {statistics.median(each):8.1f} ms  of {sorted(each)}")
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
