"""Run pytest in another process and read its result."""

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_TIMEOUT_S = 900.0
_CLOSING_LINE = re.compile(r"^(?:=+ )?(?P<counts>\d+ [a-z]+(?:, \d+ [a-z]+)*) in [\d.]+s\b", re.MULTILINE)
_LEAKING = ("PYTHONHOME", "PYTHONPATH", "PYTEST_ADDOPTS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
"""Variables of the caller's Python that would change the one under test."""


@dataclass(frozen=True)
class PytestRun:
    """The result of one pytest process."""

    exit_code: int
    counts: Mapping[str, int]
    """Tests by outcome, in pytest's words: passed, failed, skipped, error."""
    seconds: float
    output: str

    @property
    def ok(self) -> bool:
        """Whether every test passed, and at least one ran."""
        return self.exit_code == 0 and self.counts.get("passed", 0) > 0

    @property
    def summary(self) -> str:
        """The counts and the time, for one line."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items())
        return f"{counts or f'pytest ended with exit code {self.exit_code}'}, {self.seconds:.0f} s"


def read_counts(output: str) -> dict[str, int]:
    """Return the tests by outcome from pytest's closing line, or nothing if it has none."""
    lines = _CLOSING_LINE.findall(output)
    if not lines:
        return {}
    pairs = (part.split(" ") for part in lines[-1].split(", "))
    return {outcome.replace("errors", "error"): int(count) for count, outcome in pairs}


def run_captured(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout without input; return its exit code and everything that it printed.

    Raises:
        TimeoutExpired: It did not end in time.
    """
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def run_pytest(python: Path, targets: Sequence[str], environment: Mapping[str, str]) -> PytestRun:
    """Run the tests below ``targets`` with ``python`` and ``environment`` on top of this process's own."""
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-q", *targets]
    inherited = {name: value for name, value in os.environ.items() if name not in _LEAKING}
    started = time.monotonic()
    try:
        done = run_captured(command, _TIMEOUT_S, inherited | dict(environment))
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        return PytestRun(124, {}, time.monotonic() - started, f"{output}\nno result within {_TIMEOUT_S:g} s")
    return PytestRun(done.returncode, read_counts(done.stdout), time.monotonic() - started, done.stdout)
