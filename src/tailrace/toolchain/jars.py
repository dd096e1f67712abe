"""The jars that Spark and the broker need beyond PySpark: in one folder, checked at each use.

Reading and hashing all of them takes less than 0.1 s, so nothing is taken on trust and no record of earlier
checks can be wrong. Once they are there, nothing here uses the network.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailrace.errors import JarCorrupt, JarMissing
from tailrace.toolchain import ivy
from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.jarlock import Jar, read_lock
from tailrace.toolchain.java import Java
from tailrace.toolchain.places import cache_dir
from tailrace.toolchain.staging import staging

Announce = Callable[[str], None]
Fetch = Callable[[Java, Sequence[Jar], Path, ivy.Progress], Path]

_MEND = "tailrace doctor --fix"


def _ignore(done: int, total: int, name: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class JarState:
    """One jar of the lock as it is on this machine."""

    jar: Jar
    path: Path
    state: Literal["present", "missing", "corrupt"]
    sha256: str | None
    """The file's checksum, or nothing where there is no file or it cannot be read."""


@dataclass(frozen=True)
class JarCache:
    """The jars of one lock in one folder."""

    folder: Path
    lock: tuple[Jar, ...]
    fetch: Fetch = ivy.fetch

    def status(self, sets: Iterable[str] | None = None) -> list[JarState]:
        """Return how each jar is, in the order of the lock; of all sets where none is named."""
        wanted = None if sets is None else set(sets)
        if wanted is not None and (unknown := wanted - {jar.set_name for jar in self.lock}):
            raise ValueError(f"no such set of jars: {', '.join(sorted(unknown))}")
        return [self._state(jar) for jar in self.lock if wanted is None or jar.set_name in wanted]

    def paths(self, set_name: str) -> list[Path]:
        """Return the jars of one set, each just verified.

        Raises:
            JarMissing: One is not there.
            JarCorrupt: One is not what the lock says.
        """
        states = self._sound(self.status([set_name]))
        absent = [state.jar for state in states if state.state == "missing"]
        if absent:
            raise JarMissing(
                f"{absent[0].coordinate} is not on this machine.",
                why=f"{len(absent)} of the {len(states)} jars of the {set_name} have not been fetched yet.",
                fix=f"Run `{_MEND}`.",
            )
        return [state.path for state in states]

    def ensure(
        self, java: Java, sets: Sequence[str], *, announce: Announce, progress: ivy.Progress
    ) -> dict[str, list[Path]]:
        """Return the jars of each set, each verified, after fetching those that are not there.

        Raises:
            JarMissing: One is not there and could not be fetched.
            JarCorrupt: One is not what the lock says, in the cache or as it came.
        """
        states = self._sound(self.status(sets))
        if any(state.state == "missing" for state in states):
            self._under_lock(announce, lambda: self._fetch(java, self._missing(sets), announce, progress))
        return {name: [state.path for state in states if state.jar.set_name == name] for name in sets}

    def mend(self, java: Java, *, announce: Announce, progress: ivy.Progress) -> list[Jar]:
        """Throw away each corrupt jar, fetch all that are not there, and return the jars that were fetched.

        Raises:
            JarMissing: One could not be fetched.
            JarCorrupt: One came with a wrong checksum.
        """
        mended: list[Jar] = []

        def work() -> None:
            for state in self.status():
                if state.state == "corrupt":
                    announce(f"Throwing away {state.path}: its content is not what the lock says.")
                    state.path.unlink()
            mended.extend(self._missing())
            if mended:
                self._fetch(java, mended, announce, progress)

        self._under_lock(announce, work)
        return mended

    def _missing(self, sets: Iterable[str] | None = None) -> list[Jar]:
        return [state.jar for state in self._sound(self.status(sets)) if state.state == "missing"]

    def _fetch(self, java: Java, jars: Sequence[Jar], announce: Announce, progress: ivy.Progress) -> None:
        if not jars:
            return  # the process that held the lock before has fetched them
        announce(f"Fetching {len(jars)} {'jar' if len(jars) == 1 else 'jars'} from {ivy.place()}, once.")
        with staging(self.folder) as made:
            came = JarCache(self.fetch(java, jars, made, progress), tuple(jars))
            for state in came.status():
                if state.state == "missing":
                    raise JarMissing(
                        f"{state.jar.coordinate} did not come with the others.", fix=f"Run `{_MEND}` again."
                    )
                if state.state == "corrupt":
                    raise JarCorrupt(
                        f"{state.jar.coordinate} is not what the lock says, as it came. Nothing was kept.",
                        why=_difference(state),
                        fix=f"Run `{_MEND}` again. If it recurs, a mirror or proxy in between alters files.",
                    )
            for jar in jars:
                (came.folder / jar.file_name).replace(self.folder / jar.file_name)

    def _under_lock(self, announce: Announce, work: Callable[[], None]) -> None:
        def waits(holder: str) -> None:
            announce(f"Another process ({holder}) is fetching the jars, waiting for it.")

        try:
            with exclusive(self.folder / "lock", on_wait=waits):
                work()
        except LockTimeoutError as error:
            raise JarMissing(
                f"Process {error.holder} has been fetching jars into {self.folder} for too long.",
                fix="End that process and try again.",
            ) from error
        except OSError as error:
            raise JarMissing(
                f"The jars cannot be put into {self.folder} ({error.strerror or error}).",
                fix="Make room or give write permission there, or set TAILRACE_HOME to another folder.",
            ) from error

    def _state(self, jar: Jar) -> JarState:
        path = self.folder / jar.file_name
        try:
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return JarState(jar, path, "missing", None)
        except OSError:
            return JarState(jar, path, "corrupt", None)
        return JarState(jar, path, "present" if actual == jar.sha256 else "corrupt", actual)

    def _sound(self, states: list[JarState]) -> list[JarState]:
        for state in states:
            if state.state == "corrupt":
                raise JarCorrupt(
                    f"{state.path} is not what the lock says.",
                    why=_difference(state),
                    fix=f"Run `{_MEND}`, which fetches it again.",
                )
        return states


def jar_status() -> list[JarState]:
    """Return how each jar of Tailrace's lock is on this machine."""
    return _user_cache().status()


def jar_paths(set_name: str) -> list[Path]:
    """Return the jars of one set, each just verified; see `JarCache.paths`."""
    return _user_cache().paths(set_name)


def ensure_jars(
    java: Java, sets: Sequence[str], announce: Announce, progress: ivy.Progress = _ignore
) -> dict[str, list[Path]]:
    """Return the jars of each set after fetching those that are not there; see `JarCache.ensure`."""
    return _user_cache().ensure(java, sets, announce=announce, progress=progress)


def mend_jars(java: Java, announce: Announce, progress: ivy.Progress = _ignore) -> list[Jar]:
    """Fetch each jar that is corrupt or not there, and return those; see `JarCache.mend`."""
    return _user_cache().mend(java, announce=announce, progress=progress)


def _user_cache() -> JarCache:
    # Resolved: a class archive belongs to the class path as it is written.
    return JarCache((cache_dir() / "jars").resolve(), read_lock())


def _difference(state: JarState) -> str:
    if state.sha256 is None:
        return "It cannot be read."
    return f"Its SHA-256 is {state.sha256}, and the lock says {state.jar.sha256}."
