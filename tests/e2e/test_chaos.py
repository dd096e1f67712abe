"""`tailrace chaos`: a user's pipeline under faults, counted exactly.

``TAILRACE_RESTARTS`` sets the number of faults of the long form; `make soak` uses twenty.
"""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import TAILRACE, environment, tailrace
from conftest import kill_marked, marked_processes, wait_until

KILLS = int(os.environ.get("TAILRACE_RESTARTS", "3"))
SOAK = KILLS > 3
PAYMENTS = """\
import tailrace as tr
from pyspark.sql import functions as F


@F.udf("double")
def risk(amount):
    return amount * 2


def decide(payments):
    kept = payments.where("amount > 10").withColumn("risk", risk("amount"))
    rows = kept.select("id", "card", "risk", F.explode(F.expr("sequence(1, 1 + cast(id % 3 as int))")).alias("n"))
    return rows.withColumn("target", F.expr("concat('out-', cast(n as string))"))


pipeline = tr.Pipeline(
    name="payments",
    source=tr.KafkaSource("payments", schema="id long, card string, amount double"),
    transform=decide,
    sink=tr.KafkaSink(topic_column="target", key="card"),
)
"""
RECORDS = """\
def payment(number):
    if number % 100 == 50:
        return b"oops"
    return f"card-{number % 50}", {"id": number, "card": f"card-{number % 50}", "amount": float(number % 40)}
"""
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
ROUTED = ("--topics", "out-1,out-2,out-3")
soak = pytest.mark.skipif(not SOAK, reason="takes minutes: make soak")


@pytest.fixture
def mark() -> Iterator[str]:
    text = f"tailrace-test-{secrets.token_hex(8)}"
    yield text
    kill_marked(text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, code in (("payments.py", PAYMENTS), ("records.py", RECORDS), ("sums.py", SUMS), ("loses.py", LOSES)):
        (tmp_path / name).write_text(code)
    return tmp_path


def command(file: str, *arguments: str) -> list[str]:
    given = ("--generator", "records.py:payment", "--rate", "300", "--checkpoint-every", "5s", "--out", "here")
    return ["chaos", file, *given, "--json", *arguments]


def chaos(project: Path, mark: str, file: str, *arguments: str, code: int = 0) -> Any:
    """Run the command to its end; return its result."""
    done = tailrace(*command(file, *arguments), cwd=project, env={"TAILRACE_TEST_MARK": mark}, timeout_s=3000)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert not marked_processes(mark)
    assert sorted(each.name for each in (project / "here").iterdir()) == [".lock", "logs", "result.json"]
    result = json.loads(done.stdout)
    assert result == json.loads((project / "here" / "result.json").read_text())
    return result


def expected_of(sent: int) -> int:
    """The number of outputs of the first payments, dead letters included."""
    good = [number for number in range(sent) if number % 100 != 50 and number % 40 > 10]
    return sum(1 + number % 3 for number in good) + sum(number % 100 == 50 for number in range(sent))


def require_exact(result: Any, kills: int) -> None:
    """Check that everything came out and that every figure fits the others."""
    assert result["kills"] == len(result["recovery_ms"]) == len(result["faults"]) == kills
    assert all(time > 0 for time in result["recovery_ms"])
    assert (result["lost"], result["out_of_order"], result["unexpected"], result["changed"]) == (0, 0, 0, 0)
    assert result["received"] == result["expected"] + result["repeated"]
    for name in ("expected", "received", "lost", "repeated"):
        assert result[name] == sum(each[name] for each in result["outputs"].values())
    assert result["expected"] == expected_of(result["sent"])
    assert set(result["outputs"]) == {"out-1", "out-2", "out-3", "payments.dead-letters"}


@pytest.mark.timeout(300)
def test_killed_jvms_and_workers_lose_nothing(project: Path, mark: str) -> None:
    faults = ("--kills", "3", "--fault", "jvm,workers", "--seconds", "6")
    result = chaos(project, mark, "payments.py", *faults, *ROUTED)
    require_exact(result, 3)
    assert {kind: each["kills"] for kind, each in result["kinds"].items()} == {"jvm": 2, "workers": 1}
    assert result["starts"] == 3
    assert [each["restarted"] for each in result["faults"]] == [True, False, True]


@soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("at", ["random", "restart", "boundary"])
def test_many_kills_at_every_moment(project: Path, mark: str, at: str, mode: str) -> None:
    faults = ("--kills", str(KILLS), "--fault", "jvm,driver,both", "--at", at, "--mode", mode)
    require_exact(chaos(project, mark, "payments.py", *faults, *ROUTED), KILLS)


@soak
@pytest.mark.timeout(3600)
def test_every_fault_of_one_machine(project: Path, mark: str) -> None:
    faults = ("--kills", str(KILLS), "--fault", "workers,broker,broker-frozen,disk-full", "--outage", "10")
    require_exact(chaos(project, mark, "payments.py", *faults, *ROUTED), KILLS)


@soak
@pytest.mark.timeout(3600)
def test_the_last_sum_of_each_key_is_right(project: Path, mark: str, mode: str) -> None:
    result = chaos(project, mark, "sums.py", "--kills", str(KILLS), "--fault", "jvm,driver,both", "--mode", mode)
    assert result["outputs"]["sums"]["counted_by"] == "key"
    assert (result["kills"], result["lost"], result["unexpected"]) == (KILLS, 0, 0)


@soak
@pytest.mark.timeout(600)
def test_a_pipeline_that_loses_records_fails(project: Path, mark: str) -> None:
    result = chaos(project, mark, "loses.py", "--kills", "1", "--seconds", "6", code=1)
    assert result["lost"] > 0
    assert result["unexpected"] > 0


@soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_goes_on(project: Path, mark: str, end: signal.Signals) -> None:
    arguments = command("payments.py", "--kills", "2", "--seconds", "6", *ROUTED)
    with (project / "err").open("w") as err:
        first = subprocess.Popen(
            [*TAILRACE, *arguments],
            cwd=project,
            env=environment({"TAILRACE_TEST_MARK": mark}),
            stderr=err,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    with first:
        wait_until(lambda: "after fault 1" in (project / "err").read_text(), 120, "the first recovery")
        first.send_signal(end)
        assert first.wait(60) == (-signal.SIGKILL if end is signal.SIGKILL else 130)
    wait_until(lambda: not marked_processes(mark), 60, "no process of it is alive")
    result = chaos(project, mark, "payments.py", "--kills", "2", "--seconds", "6", *ROUTED)
    require_exact(result, 2)
    assert result["faults"][0]["recovery_ms"] > 0


@soak
@pytest.mark.timeout(3600)
def test_killed_executors_lose_nothing(project: Path, mark: str, cluster: Any) -> None:
    faults = ("--kills", str(KILLS), "--fault", "executor", "--master", cluster.master_url)
    require_exact(chaos(project, mark, "payments.py", *faults, *ROUTED), KILLS)
