"""The lock file of the jars: their coordinates, sets and checksums."""

import re
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import REINSTALL, JarLockInvalid

LOCK_FILE = Path(__file__).with_name("jars.lock")

_COORDINATE = r"[A-Za-z0-9._-]+"
_LINE = re.compile(
    rf"(?P<set_name>[a-z]+) (?P<group>{_COORDINATE}):(?P<artifact>{_COORDINATE}):(?P<version>{_COORDINATE}) "
    r"sha256:(?P<sha256>[0-9a-f]{64})"
)


@dataclass(frozen=True)
class Jar:
    """A jar in the lock file."""

    set_name: str
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The published file name, so that a user can copy the jar into the cache."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """The Maven coordinate."""
        return f"{self.group}:{self.artifact}:{self.version}"


def read_lock(path: Path = LOCK_FILE) -> tuple[Jar, ...]:
    """Return the jars of the lock file at ``path``, in file order.

    Raises:
        JarLockInvalid: The file cannot be read or a line is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JarLockInvalid(f"cannot read the jar lock {path}", why=str(error), fix=REINSTALL) from error
    jars: dict[str, Jar] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            raise _invalid(
                path, number, "the line does not have the form `<set> <group>:<artifact>:<version> sha256:<hex>`"
            )
        jar = Jar(**match.groupdict())
        # The cache is one flat folder: two jars with the same file name would overwrite each other.
        if jar.file_name in jars:
            raise _invalid(path, number, f"{jar.file_name} is listed twice")
        jars[jar.file_name] = jar
    if not jars:
        raise _invalid(path, 1, "the file lists no jar")
    return tuple(jars.values())


def _invalid(path: Path, number: int, why: str) -> JarLockInvalid:
    return JarLockInvalid(f"line {number} of the jar lock {path} is invalid", why=why, fix=REINSTALL)
