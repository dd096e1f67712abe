"""Measure the CPU time of an idle real-time query: no record arrives, with 2 and with 24 partitions.

For each number of partitions it starts a broker and a query of their own, waits, and measures the JVMs of both.
To compare two versions of Tailrace, run it once with each of them in PYTHONPATH, and with a --label.
Writes `benchmarks/results/idle-cpu.json`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import create_topic

RESULT = Path(__file__).parent / "results" / "idle-cpu.json"


def main() -> None:
    """Measure each number of partitions in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", default="2,24", help="numbers of partitions of the source topic")
    parser.add_argument("--settle", type=float, default=15, help="seconds between the start and the measurement")
    parser.add_argument("--seconds", type=float, default=30, help="measured seconds")
    parser.add_argument("--label", default="this", help="the name of these figures in the result")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    report["seconds"] = options.seconds
    percent = report.setdefault("percent_of_a_core", {})
    percent[options.label] = {partitions: [] for partitions in options.partitions.split(",")}
    for _ in range(options.runs):
        for partitions, runs in percent[options.label].items():
            arguments = ["--one", partitions, str(options.settle), str(options.seconds)]
            one = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
            runs.append(json.loads(one.stdout.splitlines()[-1]))
            print(f"{options.label}, {partitions} partitions: {runs[-1]} % of a core", flush=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


def _measure(partitions: int, settle_s: float, seconds: float) -> None:
    """Print the CPU time of one idle query, in percent of a core, as JSON."""
    import tailrace as tr

    with temporary_broker(lambda _: None) as broker, tempfile.TemporaryDirectory() as folder:
        client = plain_client(broker.bootstrap_servers)
        create_topic(client, "in", partitions)
        create_topic(client, "out", 1)
        brokers = _java_processes()
        pipeline = tr.Pipeline("idle", tr.KafkaSource("in", "n long"), lambda rows: rows, tr.KafkaSink("out"))
        with tr.start(pipeline, "realtime", bootstrap_servers=broker.bootstrap_servers, checkpoint=folder):
            sparks = _java_processes() - brokers
            time.sleep(settle_s)
            began, spark, kafka = time.monotonic(), _cpu_s(sparks), _cpu_s(brokers)
            time.sleep(seconds)
            took = time.monotonic() - began
            spark, kafka = (_cpu_s(sparks) - spark) / took, (_cpu_s(brokers) - kafka) / took
    print(json.dumps({"spark": round(100 * spark, 2), "broker": round(100 * kafka, 2)}), flush=True)


def _java_processes() -> set[psutil.Process]:
    return {each for each in psutil.Process().children(recursive=True) if "java" in each.name()}


def _cpu_s(processes: set[psutil.Process]) -> float:
    return float(sum(each.cpu_times().user + each.cpu_times().system for each in processes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _measure(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
