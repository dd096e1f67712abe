"""`tailrace run`: the same file in both modes, stopped as it should be, quiet."""

import json
import os
import secrets
import signal
from pathlib import Path

import pytest
from commands import PIPELINE, running, said, tailrace
from conftest import Kafka, marked_processes, wait_until

from tailrace.kafka.records import read_records


@pytest.fixture
def project(tmp_path: Path, kafka: Kafka) -> Path:
    text = PIPELINE.format(name="cards", source=kafka.topic("payments"), sink=kafka.topic("decisions"))
    (tmp_path / "cards.py").write_text(text)
    return tmp_path


@pytest.mark.parametrize(("mode", "stop_signal"), [("realtime", signal.SIGINT), ("microbatch", signal.SIGTERM)])
def test_it_runs_and_stops_cleanly(project: Path, kafka: Kafka, mode: str, stop_signal: signal.Signals) -> None:
    source, sink = kafka.created
    with running(project, "--mode", mode, "--bootstrap-servers", kafka.bootstrap_servers) as process:
        kafka.send(source, [{"id": n, "card": "c", "amount": 99.0} for n in range(20)])
        received = kafka.receive_count(sink, 20)
        _assert_second_runner_is_refused(project, kafka, process.pid)
        process.send_signal(stop_signal)
        assert process.wait(30) == 0
    assert sorted(value["id"] for _, value in received) == list(range(20))
    words = said(project)
    assert "Exception" not in words
    assert "WARN" not in words
    assert len(words.splitlines()) <= 6, words
    summary = json.loads((project / "out").read_text())
    assert summary["mode"] == mode
    assert (summary["uncommitted_rows"], summary["repeats"]) == (0, "")
    assert "the next start repeats nothing" in words
    assert summary["checkpoint"] == str(project / ".tailrace" / "checkpoints" / "cards")


SLOW = """\
import time
from pathlib import Path

from tailrace.running.ending import Ending

end = Ending.end


def note_end(ending, timeout_s):
    Path("stopping").touch()
    end(ending, timeout_s)


Ending.end = note_end


@F.udf("long")
def slow(value):
    time.sleep(0.1)
    if value >= 10:
        Path({began!r} + str(value % 2)).touch()  # a file for each partition
    return value


def decide(payments):
    return payments.withColumn("id", slow("id"))
"""


def test_a_second_signal_stops_at_once_and_says_what_is_read_again(project: Path, kafka: Kafka, mode: str) -> None:
    source, sink = kafka.created
    text = PIPELINE.format(name="cards", source=source, sink=sink)
    start, _, rest = text.partition("def decide")
    slow = SLOW.format(began=str(project / "began"))
    (project / "cards.py").write_text(start + slow + rest.partition("\n")[2].partition("\n")[2])
    kafka.send_to_every_partition(source, [{"id": n, "card": "c", "amount": 99.0} for n in range(400)])
    options = ("--mode", mode, "--bootstrap-servers", kafka.bootstrap_servers, "--stop-timeout", "2m")
    with running(project, *options) as process:
        wait_until(lambda: len([*project.glob("began?")]) == 2, 60, "both tasks process theirs")
        process.send_signal(signal.SIGINT)
        wait_until((project / "stopping").exists, 30, "the stop")
        assert process.poll() is None, "it waits for its rows, 20 s in two tasks"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, said(project)
    again = "the next start may read up to 400 records again; it repeats no result"
    assert f"the stop was interrupted: {again}" in said(project).splitlines(), said(project)
    assert len(list(read_records(kafka.config, sink))) < 400, "its rows are not finished"


def _assert_second_runner_is_refused(project: Path, kafka: Kafka, first: int) -> None:
    second = tailrace("run", "cards.py", "--bootstrap-servers", kafka.bootstrap_servers, cwd=project)
    assert second.returncode == 1
    assert "[CHECKPOINT_IN_USE]" in second.stderr
    assert f"process {first}" in second.stderr


def test_nothing_survives_kill_9_and_nothing_is_lost(project: Path, kafka: Kafka) -> None:
    source, sink = kafka.created
    mark = f"tailrace-test-{secrets.token_hex(8)}"
    with running(project, "--bootstrap-servers", kafka.bootstrap_servers, mark=mark) as process:
        kafka.send(source, [{"id": n, "card": "c", "amount": 99.0} for n in range(50)])
        kafka.receive_count(sink, 1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    wait_until(lambda: not marked_processes(mark), 10, "no JVM of it is alive")
    kafka.send(source, [{"id": 50, "card": "c", "amount": 99.0}])
    with running(project, "--bootstrap-servers", kafka.bootstrap_servers):
        kafka.receive(sink, lambda seen: {value["id"] for _, value in seen} == set(range(51)))


def test_a_context_too_small_is_rebuilt_with_the_slots_needed(project: Path, kafka: Kafka) -> None:
    source, sink = kafka.created
    text = (project / "cards.py").read_text()
    two_shuffles = """    counted = payments.groupBy("card", "id").agg(F.sum("amount").alias("amount"))
    return counted.repartition("id")
"""
    start, _, rest = text.partition("    return ")
    (project / "cards.py").write_text(start + two_shuffles + rest.partition("\n")[2])
    with running(project, "--bootstrap-servers", kafka.bootstrap_servers, "--shuffle-partitions", "3"):
        kafka.send(source, [{"id": 1, "card": "c", "amount": 99.0}])
        kafka.receive_count(sink, 1)
    assert "2 + 3 + 3 = 8 task slots" in said(project)


def test_a_jvm_that_is_killed_is_one_error_and_nothing_else(project: Path, kafka: Kafka) -> None:
    text = (project / "cards.py").read_text()
    # A job with a Python function on an RDD connects the JVM to PySpark's accumulator server.
    job = "    payments.sparkSession.sparkContext.parallelize([1], 1).map(str).count()\n    return "
    (project / "cards.py").write_text(text.replace("    return ", job, 1))
    mark = f"tailrace-test-{secrets.token_hex(8)}"
    with running(project, "--bootstrap-servers", kafka.bootstrap_servers, mark=mark) as process:
        before = said(project)
        (jvm,) = [each for each, command in marked_processes(mark).items() if "java" in command.split()[0]]
        os.kill(jvm, signal.SIGKILL)
        assert process.wait(30) == 1
    assert [line.split(":")[0].strip() for line in said(project).removeprefix(before).splitlines()] == [
        "error",
        "why",
        "fix",
    ], said(project)
    assert "Spark's JVM ended while query 'cards' ran [QUERY_FAILED]" in said(project)
