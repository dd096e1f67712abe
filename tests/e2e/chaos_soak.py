"""Long chaos runs: every fault, at every moment, in both modes. `make soak` runs this module.

``TAILRACE_RESTARTS`` sets the number of faults of each run.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from chaos_command import ROUTED, SPREAD, Project, command, require_exact, require_once
from commands import TAILRACE, environment
from conftest import Kafka, wait_until
from crashes import Case
from test_delivery import Crashed

from tailrace.cluster.cluster import Cluster

KILLS = int(os.environ.get("TAILRACE_RESTARTS", "20"))
SUMS = """\
import tailrace as tr
from pyspark.sql import functions as F

pipeline = tr.Pipeline(
    name="sums",
    source=tr.KafkaSource("payments", schema="id long, card string, amount double"),
    transform=lambda df: df.groupBy("card").agg(F.count("*").alias("count"), F.sum("amount").alias("sum")),
    sink=tr.KafkaSink("sums", key="card"),
)
"""
LOSES = """\
import tailrace as tr

pipeline = tr.Pipeline(
    name="loses",
    source=tr.KafkaSource("payments", schema="id long, card string, amount double"),
    transform=lambda df: df.where("rand() < 0.9"),
    sink=tr.KafkaSink("kept", key="card"),
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with Project.at(tmp_path) as project:
        yield project


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("at", ["random", "restart", "boundary"])
def test_many_kills_at_every_moment(project: Project, at: str, mode: str) -> None:
    faults = ("--kills", str(KILLS), "--fault", "jvm,driver,both", "--at", at, "--mode", mode)
    require_exact(project.chaos("payments.py", *faults, *ROUTED), KILLS)


@pytest.mark.timeout(3600)
def test_many_kills_at_least_once(project: Project) -> None:
    faults = ("--kills", str(KILLS), "--fault", "jvm,driver,both", "--delivery", "at-least-once")
    result = project.chaos("payments.py", *faults, *ROUTED)
    require_exact(result, KILLS, repeats=True)
    # The progress is noted each second: a few seconds of 300 records, of which three in four have two results each.
    assert 0 < result["repeated"] < KILLS * 3 * 450


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("spark")
def test_crashes_of_one_pipeline_in_both_modes_by_chance(kafka: Kafka, tmp_path: Path) -> None:
    """Also with checkpoints between the crashes, and several crashes before the results of the first are met."""
    chance = Random(KILLS)
    case = Case("mixed", kafka.topic("numbers", 2), f"mixed-{kafka.topic('prefix', 1)}", str(tmp_path / "checkpoint"))
    case.create(kafka.config)
    crashed = Crashed(kafka, tmp_path, {case.name: case})
    for _ in range(KILLS):
        mode, every = chance.choice(["realtime", "realtime", "microbatch"]), chance.choice(["2s", "5m"])
        crashed.crash(replace(case, mode=mode, checkpoint_every=every), seconds=chance.uniform(0, 5))
    crashed.go_on(case, chance.choice(["realtime", "microbatch"]), delivery="effectively-once")
    assert crashed.counts(case) == (0, 0)


@pytest.mark.timeout(3600)
def test_every_fault_of_one_machine(project: Project, mode: str) -> None:
    faults = (
        "--kills",
        str(KILLS),
        "--fault",
        "workers,broker,broker-frozen,disk-full",
        "--outage",
        "10",
        "--mode",
        mode,
    )
    require_exact(project.chaos("payments.py", *faults, *ROUTED), KILLS)


@pytest.mark.timeout(3600)
def test_the_last_sum_of_each_key_is_right(project: Project, mode: str) -> None:
    (project.folder / "sums.py").write_text(SUMS)
    result = project.chaos("sums.py", "--kills", str(KILLS), "--fault", "jvm,driver,both", "--mode", mode)
    assert result["outputs"]["sums"]["counted_by"] == "key"
    assert (result["kills"], result["lost"], result["unexpected"]) == (KILLS, 0, 0)


@pytest.mark.timeout(600)
def test_a_pipeline_that_loses_records_fails(project: Project) -> None:
    (project.folder / "loses.py").write_text(LOSES)
    result = project.chaos("loses.py", "--kills", "1", "--seconds", "6", code=1)
    assert result["lost"] > 0
    assert result["unexpected"] > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_goes_on(project: Project, end: signal.Signals) -> None:
    arguments = command("payments.py", "--kills", "2", "--seconds", "6", *ROUTED)
    with (project.folder / "err").open("w") as err:
        first = subprocess.Popen(
            [*TAILRACE, *arguments],
            cwd=project.folder,
            env=environment(project.env),
            stderr=err,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    with first:
        try:
            wait_until(lambda: "after fault 1" in (project.folder / "err").read_text(), 120, "the first recovery")
            first.send_signal(end)
            assert first.wait(60) == (-signal.SIGKILL if end is signal.SIGKILL else 130)
        finally:
            first.kill()
    wait_until(project.is_at_rest, 60, "no process of it is alive")
    result = project.chaos("payments.py", "--kills", "2", "--seconds", "6", *ROUTED)
    require_exact(result, 2)
    assert result["faults"][0]["recovery_ms"] > 0


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("at", ["random", "boundary"])
def test_killed_executors_lose_and_repeat_nothing(project: Project, cluster: Cluster, at: str, mode: str) -> None:
    faults = ("--kills", str(KILLS), "--fault", "executor", "--at", at, "--mode", mode, "--master", cluster.master_url)
    require_once(project.chaos("payments.py", *faults, *SPREAD, *ROUTED), KILLS)
