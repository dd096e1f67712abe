"""The development cluster: Spark's own master and workers, pipelines on them, and nothing left when it ends."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from commands import PIPELINE, environment, running, said, tailrace
from conftest import Kafka, marked_processes, wait_until

from tailrace.cluster.cluster import Cluster, ClusterRecord

PATIENCE_S = 4.0
IMPATIENT = f"""\
from tailrace.running import flow
flow.PATIENCE_S = {PATIENCE_S}
"""
"""Lets the watch of a pipeline's query wait for less time than it does."""
UDF = """\
@F.udf("double")
def doubled(amount):
    return amount * 2


def decide(payments):
    return payments.where("amount > 10").withColumn("decision", F.lit("review")).withColumn("twice", doubled("amount"))
"""
OWNER = """\
import sys
from tailrace.cluster.cluster import temporary_cluster
with temporary_cluster(lambda _: None) as cluster:
    print(cluster.master_url, flush=True)
    sys.stdin.read()
"""


def python_pipeline(name: str, source: str, sink: str) -> str:
    """A pipeline with a Python function, whose type in text needs Spark when the file is loaded."""
    text = PIPELINE.format(name=name, source=source, sink=sink)
    start, _, rest = text.partition("def decide")
    return start + UDF + rest.partition("\n")[2].partition("\n")[2]


def payments(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "card": f"card-{number % 7}", "amount": 99.0} for number in range(first, first + count)]


def command_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
        return " ".join(process.cmdline())
    return ""


def executors_of(record: ClusterRecord) -> list[psutil.Process]:
    """The executors that the workers of a cluster run now."""
    below = [
        child
        for each in record.daemons()
        if (pid := each.pid()) is not None
        for child in psutil.Process(pid).children(recursive=True)
    ]
    return [child for child in below if "CoarseGrainedExecutorBackend" in command_of(child)]


def listening(pids: list[int]) -> set[str]:
    """The addresses on which processes accept connections."""
    addresses = set()
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):  # a Python worker that has just ended
            connections = psutil.Process(pid).net_connections("inet")
            addresses |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return {address.removeprefix("::ffff:") for address in addresses}


def test_life_of_a_cluster_started_by_hand(own_home: dict[str, str]) -> None:
    home = Path(own_home["TAILRACE_HOME"])

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return tailrace("cluster", *arguments, cwd=home, env=own_home)

    done = command("start", "--workers", "2", "--cores", "2", "--memory", "1g")
    assert done.returncode == 0, done.stderr
    assert "tailrace run FILE --master spark://127.0.0.1:" in done.stderr
    (row,) = json.loads(command("status", "--json").stdout)["clusters"]
    assert f"--master {row['master']}" in done.stderr
    assert row["workers_alive"] == 2
    pids = [each["pid"] for each in row["daemons"]]
    assert set(pids) == set(marked_processes(own_home["TAILRACE_TEST_MARK"]))
    assert listening(pids) == {"127.0.0.1"}

    again = command("start", "--workers", "2", "--cores", "2", "--memory", "1g", "--json")
    assert json.loads(again.stdout)["pid"] == row["pid"], "a second start finds the running one"
    other = command("start")
    assert other.returncode == 2
    assert "[CLUSTER_ALREADY_RUNNING]" in other.stderr
    taken = command("start", "--name", "other", "--port", str(row["port"]))
    assert f"another process uses port {row['port']}" in taken.stderr

    assert command("stop").returncode == 0
    assert marked_processes(own_home["TAILRACE_TEST_MARK"]) == {}
    assert list((home / "state" / "clusters").iterdir()) == []
    assert "[CLUSTER_NOT_RUNNING]" in command("stop").stderr


def test_a_pipeline_with_a_python_function_runs_on_a_cluster(
    cluster: Cluster, kafka: Kafka, mode: str, tmp_path: Path
) -> None:
    source, sink = kafka.topic("payments", 4), kafka.topic("decisions")
    (tmp_path / "cards.py").write_text(python_pipeline("cards", source, sink))
    options = ["--mode", mode, "--master", cluster.master_url, "--bootstrap-servers", kafka.bootstrap_servers]
    mark = f"tailrace-test-{secrets.token_hex(8)}"
    with running(tmp_path, *options, mark=mark) as process:
        kafka.send_to_every_partition(source, payments(0, 200))
        received = kafka.receive_count(sink, 200)
        executors = executors_of(cluster.record)
        assert len(executors) == 2
        assert listening([*marked_processes(mark), *(each.pid for each in executors)]) == {"127.0.0.1"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, said(tmp_path)
    assert sorted(value["id"] for _, value in received) == list(range(200))
    assert {value["twice"] for _, value in received} == {198.0}
    wait_until(lambda: not executors_of(cluster.record), 20, "the executors end with their application")


def test_a_real_time_query_survives_the_loss_of_an_executor(cluster: Cluster, kafka: Kafka, tmp_path: Path) -> None:
    # Six of the eight slots: each executor runs two tasks at least.
    source, sink = kafka.topic("payments", 6), kafka.topic("decisions")
    (tmp_path / "cards.py").write_text(IMPATIENT + PIPELINE.format(name="cards", source=source, sink=sink))
    with running(tmp_path, "--master", cluster.master_url, "--bootstrap-servers", kafka.bootstrap_servers) as process:
        kafka.send_to_every_partition(source, payments(0, 60))
        assert {value["id"] for _, value in kafka.receive_count(sink, 60)} == set(range(60))
        lost, kept = executors_of(cluster.record)
        lost.kill()
        # Longer than the watch would wait for tasks without a slot if none had failed.
        until, sent = time.monotonic() + PATIENCE_S + 5, 60
        while time.monotonic() < until or len(executors_of(cluster.record)) < 2:
            assert time.monotonic() < until + 60, "Spark did not replace the executor"
            kafka.send_to_every_partition(source, payments(sent, 60))
            sent += 60
            expected = set(range(sent))
            kafka.receive(sink, lambda seen, ids=expected: {value["id"] for _, value in seen} == ids, timeout_s=90)
        assert kept.is_running()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, said(tmp_path)
    assert "PARTITIONS_STARVED" not in said(tmp_path)
    assert "not being read" not in said(tmp_path)
    assert "cannot get a slot" not in said(tmp_path)


def test_nothing_of_a_programs_cluster_survives_its_kill(
    own_home: dict[str, str], kafka: Kafka, tmp_path: Path
) -> None:
    source, sink = kafka.topic("payments"), kafka.topic("decisions")
    (tmp_path / "cards.py").write_text(PIPELINE.format(name="cards", source=source, sink=sink))
    mark = own_home["TAILRACE_TEST_MARK"]
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(own_home),
        text=True,
    ) as owner:
        assert owner.stdout is not None
        master = owner.stdout.readline().strip()
        before = set(marked_processes(mark))
        with running(tmp_path, "--master", master, "--bootstrap-servers", kafka.bootstrap_servers):
            assert set(marked_processes(mark)) > before, "executors inherit the mark"
            os.kill(owner.pid, signal.SIGKILL)
            wait_until(lambda: not marked_processes(mark), 20, "neither daemons nor executors are alive")
    clusters = Path(own_home["TAILRACE_HOME"]) / "state" / "clusters"
    wait_until(lambda: not list(clusters.iterdir()), 5, "its folder is gone")
