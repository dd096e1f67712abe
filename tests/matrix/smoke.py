"""One pipeline with Python functions and one with state, in both modes, on a given Java and Python.

Run by `pythons.py` and `javas.py`, which set TAILRACE_SMOKE_JAVA and TAILRACE_SMOKE_PYTHON.
"""

import os
import platform
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import run
from tailrace.testing.bench import shared_bench

PAYMENTS = [{"id": n, "card": f"c{n % 3}", "amount": float(n)} for n in range(60)]


def score(payments: DataFrame) -> DataFrame:
    # Without type hints: PySpark reads hints on a plain function as those of a vectorised one, and warns.
    @F.udf("double")
    def risk(amount):
        return amount / 100

    @F.pandas_udf("long")
    def next_id(ids: pd.Series) -> pd.Series:
        return ids + 1

    @F.udf("string")
    def worker_python():
        return platform.python_version()

    return payments.select(
        "card", risk("amount").alias("risk"), next_id("id").alias("next"), worker_python().alias("python")
    )


def totals(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").agg(F.count("*").alias("payments"), F.sum("amount").alias("total"))


def pipeline(name: str, transform: Callable[[DataFrame], DataFrame]) -> tr.Pipeline:
    return tr.Pipeline(
        name=name,
        source=tr.KafkaSource(f"{name}-in", schema="id long, card string, amount double"),
        transform=transform,
        sink=tr.KafkaSink(f"{name}-out", key="card"),
    )


@pytest.fixture(params=["microbatch", "realtime"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def broker_home() -> Path:
    """Return the home of the Java that the broker's process runs on."""
    root = psutil.Process(shared_bench().broker.pid)
    for process in [root, *root.children(recursive=True)]:
        executable = Path(process.exe())
        if executable.name == "java":
            return executable.parent.parent
    raise AssertionError("the broker's process tree has no Java")


def major_of(home: Path) -> str:
    match = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{home} names no version"
    return match.group(1)


def test_python_functions(mode: str) -> None:
    found = run(pipeline("score", score), PAYMENTS, mode).rows
    assert sorted(found, key=lambda row: row["next"]) == [
        {"card": row["card"], "risk": row["amount"] / 100, "next": row["id"] + 1, "python": platform.python_version()}
        for row in PAYMENTS
    ]


def test_state(mode: str) -> None:
    last = run(pipeline("totals", totals), PAYMENTS, mode).last("card")
    assert {row["card"]: (row["payments"], row["total"]) for row in last.values()} == {
        "c0": (20, 570.0),
        "c1": (20, 590.0),
        "c2": (20, 610.0),
    }


def test_versions() -> None:
    """Spark and the broker run on the Java that was asked for, and these tests on the Python."""
    if wanted := os.environ.get("TAILRACE_SMOKE_JAVA"):
        jvm = shared_bench().spark.sparkContext._jvm
        assert jvm is not None
        assert jvm.System.getProperty("java.specification.version") == wanted
        assert major_of(broker_home()) == wanted
    if wanted := os.environ.get("TAILRACE_SMOKE_PYTHON"):
        assert platform.python_version() == wanted
