"""The lock file of the jars: which ones there are, in which set, with which checksum."""

import re
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import JarLockInvalid

LOCK_FILE = Path(__file__).with_name("jars.lock")

_COORDINATE = r"[A-Za-z0-9._-]+"
_LINE = re.compile(
    rf"(?P<set_name>[a-z]+) (?P<group>{_COORDINATE}):(?P<artifact>{_COORDINATE}):(?P<version>{_COORDINATE}) "
    r"sha256:(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Jar:
    """One line of the lock."""

    set_name: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name that the jar has wherever it is published, so that a user can copy one into the cache."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """The jar as build tools write it."""
        return f"{self.group}:{self.artifact}:{self.version}"


def read_lock(path: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """Return the jars of the lock file at ``path``, in its order.

    Raises:
        JarLockInvalid: It cannot be read; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JarLockInvalid(
            f"The jar lock {path} cannot be read.", why=str(error), fix="Install Tailrace again."
        ) from error
    jars: dict[str, Jar] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            raise _invalid(path, number, "It is not of the form `<set> <group>:<artifact>:<version> sha256:<hex>`.")
        jar = Jar(**match.groupdict())
        # The cache is one flat folder, in which two jars of one name would overwrite each other.
        if jar.file_name in jars:
            raise _invalid(path, number, f"{jar.file_name} is in the lock already.")
        jars[jar.file_name] = jar
    if not jars:
        raise _invalid(path, 1, "There is no jar in it.")
    return tuple(jars.values())


def _invalid(path: Path, number: int, why: str) -> JarLockInvalid:
    return JarLockInvalid(f"Line {number} of the jar lock {path} is wrong.", why=why, fix="Install Tailrace again.")
