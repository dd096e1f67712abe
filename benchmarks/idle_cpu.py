"""Measure the CPU time of an idle real-time query: no record arrives, with 2 and with 24 partitions.

For each number of partitions it starts a broker and a query of their own, waits, and measures the JVMs of both.
To compare two versions of Tailrace, run it once with each of them in PYTHONPATH.
"""

import argparse
import subprocess
import sys
import tempfile
import time

import psutil

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import create_topic


def main() -> None:
    """Measure each number of partitions in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", default="2,24", help="numbers of partitions of the source topic")
    parser.add_argument("--settle", type=float, default=15, help="seconds between the start and the measurement")
    parser.add_argument("--seconds", type=float, default=30, help="measured seconds")
    options = parser.parse_args()
    for partitions in options.partitions.split(","):
        arguments = ["--one", partitions, str(options.settle), str(options.seconds)]
        subprocess.run([sys.executable, __file__, *arguments], check=True)


def _measure(partitions: int, settle_s: float, seconds: float) -> None:
    """Print the CPU time of one idle query, in percent of a core."""
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
    print(
        f"{partitions:>3} partitions: Spark {spark:6.2%}, broker {kafka:6.2%} of a core over {took:.0f} s", flush=True
    )


def _java_processes() -> set[psutil.Process]:
    return {each for each in psutil.Process().children(recursive=True) if "java" in each.name()}


def _cpu_s(processes: set[psutil.Process]) -> float:
    return float(sum(each.cpu_times().user + each.cpu_times().system for each in processes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        _measure(int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
