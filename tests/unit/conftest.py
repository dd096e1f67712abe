import os
import time
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace import spark_session

# A shared machine may stall any single example; what is slow on purpose is caught by the suite's own limit.
hypothesis.settings.register_profile("tailrace", deadline=None)
hypothesis.settings.load_profile("tailrace")

HIDDEN = ("JAVA_HOME", "PYTEST_ADDOPTS", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS")
WaitUntil = Callable[[Callable[[], bool], str], None]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give each test folders of its own, and a machine on which nothing is set."""
    for variable in [*os.environ]:
        if variable.startswith("TAILRACE_") or variable in HIDDEN:
            monkeypatch.delenv(variable)
    home = tmp_path / "tailrace-home"
    monkeypatch.setenv("TAILRACE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the Spark of end-to-end tests that run in the same process: a command under test would end it."""
    for holder, name in (
        (SparkContext, "_active_spark_context"),
        (SparkContext, "_gateway"),
        (SparkContext, "_jvm"),
        (SparkSession, "_instantiatedSession"),
        (spark_session, "_prelaunched"),
        (spark_session, "_replaceable"),
    ):
        monkeypatch.setattr(holder, name, None)


@pytest.fixture
def wait_until() -> WaitUntil:
    """Wait, within a bound, for something that another process does."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited 20 s for: {what}")
            time.sleep(0.01)  # between two looks, never instead of one

    return wait
