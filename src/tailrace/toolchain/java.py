"""The Java that runs Spark and the broker: an installed one, or a downloaded runtime.

A Java that the user names in a variable is used or refused, never replaced. Other installations are used if their
version is supported.
"""

import glob
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import JavaUnusable
from tailrace.toolchain.directories import cache_dir
from tailrace.toolchain.java_download import download_folder, download_java, downloaded_java
from tailrace.toolchain.probe import Probe, ProbeError, probe
from tailrace.toolchain.shim import write_shim

USABLE = (17, 21, 25)
"""The Java versions that Spark 4.3 supports; the most tested one first."""

DOWNLOADED = "downloaded"

_VARIABLES = ("TAILRACE_JAVA_HOME", "JAVA_HOME")
_USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/home/linuxbrew/.linuxbrew/opt/openjdk*/libexec",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


@dataclass(frozen=True)
class Java:
    """A Java installation that Spark and Kafka can run on."""

    home: Path
    """The value of JAVA_HOME for child processes."""
    executable: Path
    version: str
    major: int
    origin: str
    """Where it was found: the name of a variable, ``PATH``, a folder, or ``downloaded``."""


def find_java() -> Java | None:
    """Return the Java to use, or None if this machine has no supported version.

    The order: TAILRACE_JAVA_HOME, JAVA_HOME, PATH, the usual installation folders, the runtime downloaded earlier.

    Raises:
        JavaUnusable: One of the two variables is set but does not name a usable Java.
    """
    for variable in _VARIABLES:
        if home := os.environ.get(variable):
            return _named(variable, Path(home).expanduser())
    for executable in _on_path():
        if (java := _usable(executable, "PATH")) is not None:
            return java
    installed = [java for path, origin in _in_usual_folders() if (java := _usable(path, origin)) is not None]
    if installed:
        return min(installed, key=lambda java: USABLE.index(java.major))
    downloaded = downloaded_java()
    return None if downloaded is None else _usable(downloaded, DOWNLOADED)


def ensure_java(announce: Callable[[str], None]) -> Java:
    """Return the Java to use; if this machine has none, download one and report that to ``announce``.

    Raises:
        JavaUnusable: The user's variable does not name a usable Java.
        JavaMissing: There is no Java, and the download failed.
    """
    if (java := find_java()) is not None:
        return java
    executable = download_java(announce)
    try:
        return _described(probe(executable), executable, DOWNLOADED)
    except ProbeError as error:
        raise JavaUnusable(
            f"the downloaded Java runtime {executable} {error}",
            why="the download may be damaged, or built for another platform",
            fix=f"remove the folder {download_folder()}, or set JAVA_HOME to a Java 17, 21 or 25",
        ) from error


def _named(variable: str, home: Path) -> Java:
    fix = f"set {variable} to the folder of a Java 17, 21 or 25, or run: unset {variable}"
    if not home.is_dir():
        raise JavaUnusable(f"{variable} is set to {home}, which is not a folder", fix=fix)
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise JavaUnusable(f"{variable} is set to {home}, which has no bin/java", fix=fix)
    try:
        answer = probe(executable)
    except ProbeError as error:
        raise JavaUnusable(f"{variable} is set to {home}, whose bin/java {error}", fix=fix) from error
    if answer.major not in USABLE:
        raise JavaUnusable(
            f"{variable} is set to {home}, which is Java {answer.major}",
            why="Spark 4.3 supports Java 17, 21 and 25",
            fix=fix,
        )
    return _described(answer, executable, variable)


def _usable(executable: Path, origin: str) -> Java | None:
    try:
        answer = probe(executable)
    except ProbeError:
        return None
    return _described(answer, executable, origin) if answer.major in USABLE else None


def _described(answer: Probe, executable: Path, origin: str) -> Java:
    # `java` on the PATH is often a link or a version manager's script, so Java itself reports its home.
    home = Path(answer.home)
    real = home / "bin" / "java"
    if not real.is_file():
        home, real = executable.parent.parent, executable
    if not answer.has_vector_module:
        home, real = _with_shim(real, origin)
    return Java(home=home, executable=real, version=answer.version, major=answer.major, origin=origin)


def _with_shim(real: Path, origin: str) -> tuple[Path, Path]:
    if origin == DOWNLOADED:
        home = download_folder() / "home"
    else:
        home = cache_dir() / "java" / f"shim-{hashlib.sha256(bytes(real)).hexdigest()[:12]}"
    try:
        return home, write_shim(home, real)
    except OSError as error:
        raise JavaUnusable(
            f"the Java at {real} lacks a module that Spark needs, and {home} is not writable",
            why=str(error),
            fix="set TAILRACE_HOME to a writable folder, or JAVA_HOME to a complete Java",
        ) from error


def _on_path() -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        executable = Path(folder) / "java"
        if folder and executable.is_file():
            yield executable


def _in_usual_folders() -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for pattern in _USUAL_FOLDERS:
        for home in sorted(glob.glob(str(Path(pattern).expanduser()))):  # noqa: PTH207 - an absolute pattern
            executable = Path(home) / "bin" / "java"
            real = os.path.realpath(executable)
            if real not in seen and executable.is_file():
                seen.add(real)
                yield executable, pattern.partition("/*")[0].partition("*")[0]
