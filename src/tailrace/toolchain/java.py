"""The Java that runs Spark and the broker: found where the user has one, obtained where there is none.

What the user set is used or refused, never overridden. What merely lies around is used if it fits.
"""

import glob
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import JavaUnusable
from tailrace.toolchain.obtain import obtain_java, obtained_folder, obtained_java
from tailrace.toolchain.places import cache_dir
from tailrace.toolchain.probe import Probe, ProbeError, probe
from tailrace.toolchain.shim import write_shim

USABLE = (17, 21, 25)
"""The Java versions that Spark 4.3 runs on, the one it is tested with most first."""

OBTAINED = "obtained"

_VARIABLES = ("TAILRACE_JAVA_HOME", "JAVA_HOME")
_USUAL_PLACES = (
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
    """One Java that Spark and Kafka can run on."""

    home: Path
    """What to set JAVA_HOME to for a child process."""
    executable: Path
    version: str
    major: int
    origin: str
    """Where it was found: a variable's name, ``PATH``, a folder, or ``obtained``."""


def find_java() -> Java | None:
    """Return the Java to use, or nothing where this machine has none that Spark runs on.

    The order: TAILRACE_JAVA_HOME, JAVA_HOME, PATH, the folders where Java is usually installed, the runtime
    obtained earlier.

    Raises:
        JavaUnusable: One of the two variables is set, and names something that cannot be used.
    """
    for variable in _VARIABLES:
        if home := os.environ.get(variable):
            return _named(variable, Path(home).expanduser())
    for candidate in _on_path():
        if (java := _usable(candidate, "PATH")) is not None:
            return java
    found = [java for path, origin in _in_usual_places() if (java := _usable(path, origin)) is not None]
    if found:
        return min(found, key=lambda java: USABLE.index(java.major))
    obtained = obtained_java()
    return None if obtained is None else _usable(obtained, OBTAINED)


def ensure_java(announce: Callable[[str], None]) -> Java:
    """Return the Java to use; where this machine has none, obtain one and say so through ``announce``.

    Raises:
        JavaUnusable: A variable of the user's names something that cannot be used.
        JavaMissing: There is none, and none could be obtained.
    """
    if (java := find_java()) is not None:
        return java
    executable = obtain_java(announce)
    try:
        return _described(probe(executable), executable, OBTAINED)
    except ProbeError as error:
        raise JavaUnusable(
            f"The Java runtime that Tailrace obtained {error}: {executable}.",
            why="The download may be damaged, or made for another kind of system than this one.",
            fix=f"Remove the folder {obtained_folder()}, or set JAVA_HOME to a Java 17, 21 or 25.",
        ) from error


def _named(variable: str, home: Path) -> Java:
    fix = f"Set {variable} to the folder of a Java 17, 21 or 25, or run `unset {variable}`."
    if not home.is_dir():
        raise JavaUnusable(f"{variable} is set to {home}, which is not a folder.", fix=fix)
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise JavaUnusable(f"{variable} is set to {home}, which has no bin/java.", fix=fix)
    try:
        answer = probe(executable)
    except ProbeError as error:
        raise JavaUnusable(f"{variable} is set to {home}, whose bin/java {error}.", fix=fix) from error
    if answer.major not in USABLE:
        raise JavaUnusable(
            f"{variable} is set to {home}, which is Java {answer.major}.",
            why="Spark 4.3 runs on Java 17, 21 or 25.",
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
    # `java` on the PATH is often a link or a version manager's script; Java itself knows its home.
    home = Path(answer.home)
    real = home / "bin" / "java"
    if not real.is_file():
        home, real = executable.parent.parent, executable
    if not answer.has_vector_module:
        home, real = _with_shim(real, origin)
    return Java(home=home, executable=real, version=answer.version, major=answer.major, origin=origin)


def _with_shim(real: Path, origin: str) -> tuple[Path, Path]:
    if origin == OBTAINED:
        home = obtained_folder() / "home"
    else:
        home = cache_dir() / "java" / f"shim-{hashlib.sha256(bytes(real)).hexdigest()[:12]}"
    try:
        return home, write_shim(home, real)
    except OSError as error:
        raise JavaUnusable(
            f"The Java at {real} lacks a module that Spark asks for, and {home} cannot be written.",
            why=str(error),
            fix="Set TAILRACE_HOME to a folder that can be written, or JAVA_HOME to a complete Java.",
        ) from error


def _on_path() -> Iterator[Path]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(folder) / "java"
        if folder and candidate.is_file():
            yield candidate


def _in_usual_places() -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for pattern in _USUAL_PLACES:
        for home in sorted(glob.glob(str(Path(pattern).expanduser()))):  # noqa: PTH207 - an absolute pattern
            executable = Path(home) / "bin" / "java"
            real = os.path.realpath(executable)
            if real not in seen and executable.is_file():
                seen.add(real)
                yield executable, pattern.partition("/*")[0].partition("*")[0]
