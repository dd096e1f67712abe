"""One pipeline with Python functions and one with state, through a real broker, in both modes.

`pythons.py` runs it, with TAILRACE_SMOKE_PYTHON set to the exact version, and so does `javas.py`.
"""

import os
import platform
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.testing import run

PYTHON = os.environ.get("TAILRACE_SMOKE_PYTHON", platform.python_version())
PAYMENTS: list[dict[str, Any]] = [{"id": n, "card": f"c{n % 3}", "amount": float(n)} for n in range(60)]


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


def test_python_functions(mode: str) -> None:
    rows = run(pipeline("score", score), PAYMENTS, mode).rows
    assert sorted(rows, key=lambda row: row["next"]) == [
        {"card": row["card"], "risk": row["amount"] / 100, "next": row["id"] + 1, "python": PYTHON} for row in PAYMENTS
    ]


def test_state(mode: str) -> None:
    last = run(pipeline("totals", totals), PAYMENTS, mode).last("card")
    assert {row["card"]: (row["payments"], row["total"]) for row in last.values()} == {
        "c0": (20, 570.0),
        "c1": (20, 590.0),
        "c2": (20, 610.0),
    }
