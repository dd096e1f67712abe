"""Ctrl-C and SIGTERM in a user's own program: the query is saved, and the program ends as it should."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Kafka, wait_until
from load import Load
from stops import Query

pytestmark = pytest.mark.usefixtures("spark")

PROGRAM = """\
import sys, threading, time
import tailrace as tr
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

@F.udf(LongType())
def wait(value):
    time.sleep({seconds})
    return value

servers, checkpoint = {servers!r}, {checkpoint!r}
pipeline = tr.Pipeline({name!r}, tr.KafkaSource({source!r}, "a long", starting="earliest"),
    lambda df: df.withColumn("a", wait("a")), tr.KafkaSink({sink!r}), malformed="drop")
def watch(query):
    while not query._ending.is_requested:
        time.sleep(0.01)
    print("stopping", flush=True)

with tr.start(pipeline, {mode!r}, bootstrap_servers=servers, checkpoint=checkpoint, stop_timeout="60s") as query:
    watching = threading.Thread(target=watch, args=[query])
    watching.start()
    try:
        print("runs", flush=True)
        query.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
watching.join()
print(repr(query.summary().repeats), flush=True)
"""


@contextmanager
def program(query: Query, folder: Path, mode: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A user's program with a query, in a Python of its own."""
    (folder / "program.py").write_text(
        PROGRAM.format(
            name=query.pipeline.name,
            seconds=seconds,
            source=query.source,
            sink=query.sink,
            mode=mode,
            servers=query.kafka.bootstrap_servers,
            checkpoint=str(query.checkpoint),
        )
    )
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n", process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_in_a_program(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    """PySpark cancels all jobs on Ctrl-C; a query of Tailrace is stopped instead."""
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load, program(query, tmp_path, mode, 0) as process:
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert out == "interrupted\nstopping\n''\n", err
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


def test_sigterm_in_a_program(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    """It leaves the `with` block, which saves what was read, and ends the program."""
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load, program(query, tmp_path, mode, 0) as process:
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM, err
    assert query.logged("offsets") == query.logged("commits") != set()
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


def test_the_second_ctrl_c_stops_at_once(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(1000)])  # 50 s in two tasks
    with program(query, tmp_path, mode, 0.1) as process:
        wait_until(lambda: query.logged("offsets") or mode == "realtime", 60, "the micro-batch has begun")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["interrupted\n", "stopping\n"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)  # its rows would take longer
        assert process.returncode != 0
    assert query.logged("commits") == set(), "nothing is saved"
    assert query.logged("offsets") == ({"0"} if mode == "microbatch" else set())
    query.pipeline = replace(query.pipeline, transform=lambda df: df)
    query.finish(mode)
    assert set(query.written()) == set(range(1000))
