"""Test every supported Python: the unit tests and the smoke tests, in an environment of its own.

`python -m tests.matrix.pythons [VERSION ...] [--require 3.11,3.12] [--others] [--pinned] [--jobs N]`
"""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.toolchain import cache_dir
from tailrace.toolchain.filelock import exclusive

from . import report
from .interpreters import Interpreter, fetch_interpreter, find_interpreter
from .pytest_run import ROOT, PytestRun, run_pytest
from .report import SetupFailed
from .setup_step import run_step

SUPPORTED = ("3.11", "3.12", "3.13")
TESTS = ("tests/unit", "tests/matrix/smoke.py")

_READY = ".ready"


def main(words: Sequence[str] | None = None) -> int:
    """Test the given Python versions, or all of them, and return the exit code."""
    parser = report.arguments("Python", SUPPORTED, "Run the unit tests and the smoke tests under each Python.")
    parser.add_argument("--pinned", action="store_true", help="use the pinned builds, even if a version is installed")
    options = parser.parse_args(words)
    versions, required = report.chosen(parser, options, SUPPORTED, default="{}.{}".format(*sys.version_info))

    def check(version: str) -> tuple[str, PytestRun]:
        installed = None if options.pinned else find_interpreter(version)
        interpreter = installed or fetch_interpreter(version)
        return f"{interpreter.version} ({interpreter.origin})", check_python(interpreter)

    return report.check_all("Python", versions, required, check, options.jobs)


def check_python(interpreter: Interpreter) -> PytestRun:
    """Run the tests with an interpreter. Only one process at a time uses its environment."""
    folder = environment_folder(interpreter, ROOT / "requirements.lock")
    with exclusive(folder.parent / f"{folder.name}.lock", on_wait=_say_waiting):
        python = _ensure_environment(interpreter, folder)
        return run_pytest(python, TESTS, {"TAILRACE_SMOKE_PYTHON": interpreter.version})


def environment_folder(interpreter: Interpreter, lock: Path) -> Path:
    """Return the folder of an interpreter's environment; each lock file has its own folder."""
    content = f"{interpreter.version} {interpreter.executable}\n".encode() + lock.read_bytes()
    minor = interpreter.version.rpartition(".")[0]
    return cache_dir() / "matrix" / "environments" / f"{minor}-{hashlib.sha256(content).hexdigest()[:12]}"


def _ensure_environment(interpreter: Interpreter, folder: Path) -> Path:
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if not (folder / _READY).is_file():
        _remove_older(folder)
        # The lock names every package, so pip resolves no dependencies; `pip check` verifies that none is missing.
        install = ["install", "--no-deps", "--no-compile", "--require-hashes", "-r", str(ROOT / "requirements.lock")]
        run_step("venv", [str(interpreter.executable), "-m", "venv", "--clear", str(folder)], SetupFailed)
        run_step("pip install", [*pip, *install], SetupFailed)
        run_step("pip check", [*pip, "check"], SetupFailed)
        (folder / _READY).touch()
    # Every time: another checkout may have used the environment meanwhile.
    this_checkout = ["install", "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    run_step("pip install of this checkout", [*pip, *this_checkout], SetupFailed)
    return python


def _remove_older(folder: Path) -> None:
    """Remove the version's environments for other lock files: each takes 1.5 GB."""
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if other.is_dir() and other != folder:
            shutil.rmtree(other, ignore_errors=True)


def _say_waiting(holder: str) -> None:
    print(f"Waiting for process {holder}, which uses the environment ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
