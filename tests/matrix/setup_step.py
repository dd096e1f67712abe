"""Run one step of a version's set-up, such as ``pip install``."""

import subprocess
import sys
from collections.abc import Sequence

from .pytest_run import run_captured

_TIMEOUT_S = 900.0


def run_step(step: str, command: Sequence[str], failure: type[Exception]) -> None:
    """Run a command; print its output if it fails.

    Args:
        step: What to call the command in the error.
        command: The program and its arguments.
        failure: The error to raise if the command fails or does not finish in time.
    """
    try:
        done = run_captured(command, _TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise failure(f"{step} did not finish within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr, flush=True)
        raise failure(f"{step} failed with exit code {done.returncode}")
