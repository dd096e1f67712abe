"""Running `tailrace` as a user does: a process of its own, in a folder of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from conftest import wait_until

TAILRACE = [sys.executable, "-m", "tailrace"]

PIPELINE = """\
import tailrace as tr
from pyspark.sql import functions as F


def decide(payments):
    return payments.where("amount > 10").withColumn("decision", F.lit("review"))


pipeline = tr.Pipeline(
    name="{name}",
    source=tr.KafkaSource("{source}", schema="id long, card string, amount double", starting="earliest"),
    transform=decide,
    sink=tr.KafkaSink("{sink}", key="card"),
)
"""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what other tests' Spark put into it."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return mine | dict(extra or {})


def tailrace(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 90
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*TAILRACE, *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def assert_told(result: subprocess.CompletedProcess[str], code: str, exit_code: int) -> None:
    """One clear sentence with its code, a way out, no stack trace, nothing on standard output."""
    assert result.returncode == exit_code, result.stderr
    lines = result.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    assert errors[0].endswith(f"[{code}]"), result.stderr
    assert any(line.strip().startswith("fix: ") for line in lines), result.stderr
    assert len(lines) <= 3, "the error and nothing else: " + result.stderr
    assert "Traceback" not in result.stderr
    assert "\tat " not in result.stderr
    assert result.stdout == ""


@contextmanager
def running(project: Path, *arguments: str, mark: str = "") -> Iterator[subprocess.Popen[str]]:
    """`tailrace run` in the background, its words in files beside the pipeline."""
    with (project / "out").open("w") as out, (project / "err").open("w") as err:
        process = subprocess.Popen(
            [*TAILRACE, "run", "cards.py", "--json", "--conf", "spark.ui.enabled=false", *arguments],
            cwd=project,
            env=environment({"TAILRACE_TEST_MARK": mark}),
            stdout=out,
            stderr=err,
            text=True,
        )
    with process:
        try:
            wait_until(
                lambda: "Ctrl-C stops it." in said(project) or process.poll() is not None, 60, "the query has started"
            )
            assert process.poll() is None, said(project)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def said(project: Path) -> str:
    return (project / "err").read_text()
