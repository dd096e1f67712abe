"""`tailrace chaos` as a user types it: a filter, a Python function, several outputs per record, bad records."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from commands import tailrace
from conftest import kill_marked, marked_processes

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
SPREAD = ("--partitions", "6")
"""Six tasks on two executors with four slots each: both executors have some, and one alone has not room for all."""
ROUTED = ("--topics", "out-1,out-2,out-3")


@dataclass(frozen=True)
class Project:
    """A folder with a pipeline, and a mark on every process that is started there."""

    folder: Path
    mark: str

    @classmethod
    @contextmanager
    def at(cls, folder: Path) -> Iterator[Self]:
        (folder / "payments.py").write_text(PAYMENTS)
        (folder / "records.py").write_text(RECORDS)
        project = cls(folder, f"tailrace-test-{secrets.token_hex(8)}")
        yield project
        kill_marked(project.mark)

    @property
    def env(self) -> dict[str, str]:
        return {"TAILRACE_TEST_MARK": self.mark}

    def is_at_rest(self) -> bool:
        return not marked_processes(self.mark)

    def chaos(self, file: str, *arguments: str, code: int = 0) -> Any:
        """Run the command to its end; return its result."""
        done = tailrace(*command(file, *arguments), cwd=self.folder, env=self.env, timeout_s=3000)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        assert self.is_at_rest()
        assert sorted(each.name for each in (self.folder / "here").iterdir()) == [".lock", "logs", "result.json"]
        result = json.loads(done.stdout)
        assert result == json.loads((self.folder / "here" / "result.json").read_text())
        return result


def command(file: str, *arguments: str) -> list[str]:
    given = ("--generator", "records.py:payment", "--rate", "300", "--checkpoint-every", "5s", "--out", "here")
    return ["chaos", file, *given, "--json", *arguments]


def expected_of(sent: int) -> int:
    """The number of outputs of the first payments, dead letters included."""
    good = [number for number in range(sent) if number % 100 != 50 and number % 40 > 10]
    return sum(1 + number % 3 for number in good) + sum(number % 100 == 50 for number in range(sent))


def require_exact(result: Any, kills: int, *, repeats: bool = False) -> None:
    """Check that everything came out once, or with `repeats` at least once, and that every figure fits the others."""
    assert result["kills"] == len(result["recovery_ms"]) == len(result["faults"]) == kills
    assert all(time > 0 for time in result["recovery_ms"])
    assert (result["lost"], result["out_of_order"], result["unexpected"], result["changed"]) == (0, 0, 0, 0)
    assert result["received"] == result["expected"] + result["repeated"]
    assert repeats or result["repeated"] == 0
    for name in ("expected", "received", "lost", "repeated"):
        assert result[name] == sum(each[name] for each in result["outputs"].values())
    assert result["expected"] == expected_of(result["sent"])
    assert set(result["outputs"]) == {"out-1", "out-2", "out-3", "payments.dead-letters"}


def require_once(result: Any, kills: int) -> None:
    """Check that everything came out, and nothing twice."""
    require_exact(result, kills)
    assert result["repeated"] == 0, result["outputs"]
