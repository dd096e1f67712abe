"""The jars that Spark and the broker need in addition to PySpark: in one folder, verified at each use.

Reading and hashing all of them takes less than 0.1 s, so no check is cached. Once the jars are present, nothing here
uses the network.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailrace.errors import JarCorrupt, JarMissing, counted
from tailrace.toolchain import ivy
from tailrace.toolchain.directories import UNWRITABLE_FIX, cache_dir
from tailrace.toolchain.filelock import END_HOLDER, LockTimeoutError, exclusive
from tailrace.toolchain.jarlock import Jar, read_lock
from tailrace.toolchain.java import Java
from tailrace.toolchain.staging import staging

Announce = Callable[[str], None]
Fetch = Callable[[Java, Sequence[Jar], Path, ivy.Progress], Path]

_FIX = "tailrace doctor --fix"


def _no_progress(done: int, total: int, name: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class JarState:
    """The state of one jar of the lock on this machine."""

    jar: Jar
    path: Path
    state: Literal["present", "missing", "corrupt"]
    sha256: str | None
    """The checksum of the file; None if the file is missing or unreadable."""


@dataclass(frozen=True)
class JarCache:
    """A folder with the jars of one lock."""

    folder: Path
    lock: tuple[Jar, ...]
    fetch: Fetch = ivy.fetch

    def status(self, sets: Iterable[str] | None = None) -> list[JarState]:
        """Return the state of each jar in the named sets, or in all sets, in the order of the lock."""
        wanted = None if sets is None else set(sets)
        if wanted is not None and (unknown := wanted - {jar.set_name for jar in self.lock}):
            raise ValueError(f"no such set of jars: {', '.join(sorted(unknown))}")
        return [self._state(jar) for jar in self.lock if wanted is None or jar.set_name in wanted]

    def paths(self, set_name: str) -> list[Path]:
        """Return the paths of the jars of one set, after verifying each.

        Raises:
            JarMissing: A jar is not in the cache.
            JarCorrupt: A checksum differs from the lock.
        """
        states = self._verified(self.status([set_name]))
        absent = [state.jar for state in states if state.state == "missing"]
        if absent:
            raise JarMissing(
                f"{absent[0].coordinate} is not on this machine",
                why=f"{len(absent)} of the {len(states)} {set_name} jars are not downloaded yet",
                fix=f"download them: {_FIX}",
            )
        return [state.path for state in states]

    def ensure(
        self, java: Java, sets: Sequence[str], *, announce: Announce, progress: ivy.Progress
    ) -> dict[str, list[Path]]:
        """Download the missing jars of the sets; return the verified paths by set.

        Raises:
            JarMissing: A jar is not in the cache and cannot be downloaded.
            JarCorrupt: The checksum of a cached or downloaded jar differs from the lock.
        """
        states = self._verified(self.status(sets))
        if any(state.state == "missing" for state in states):
            self._under_lock(announce, lambda: self._fetch(java, self._missing(sets), announce, progress))
        return {name: [state.path for state in states if state.jar.set_name == name] for name in sets}

    def repair(self, java: Java, *, announce: Announce, progress: ivy.Progress) -> list[Jar]:
        """Delete corrupt jars, download all missing ones, and return the downloaded jars.

        Raises:
            JarMissing: A jar cannot be downloaded.
            JarCorrupt: The checksum of a downloaded jar differs from the lock.
        """
        downloaded: list[Jar] = []

        def work() -> None:
            for state in self.status():
                if state.state == "corrupt":
                    announce(f"Deleting {state.path}: its checksum differs from the lock.")
                    state.path.unlink()
            downloaded.extend(self._missing())
            if downloaded:
                self._fetch(java, downloaded, announce, progress)

        self._under_lock(announce, work)
        return downloaded

    def _missing(self, sets: Iterable[str] | None = None) -> list[Jar]:
        return [state.jar for state in self._verified(self.status(sets)) if state.state == "missing"]

    def _fetch(self, java: Java, jars: Sequence[Jar], announce: Announce, progress: ivy.Progress) -> None:
        if not jars:
            return  # the previous holder of the lock has downloaded them
        announce(f"Downloading {counted(len(jars), 'jar')} from {ivy.origin()}, once ...")
        with staging(self.folder) as folder:
            downloads = JarCache(self.fetch(java, jars, folder, progress), tuple(jars))
            for state in downloads.status():
                if state.state == "missing":
                    raise JarMissing(f"{state.jar.coordinate} was not downloaded", fix=f"try again: {_FIX}")
                if state.state == "corrupt":
                    raise JarCorrupt(
                        f"the downloaded {state.jar.coordinate} does not match the lock, so no jar was kept",
                        why=_difference(state),
                        fix=f"try again: {_FIX}; if the error persists, a mirror or proxy modifies files",
                    )
            for jar in jars:
                (downloads.folder / jar.file_name).replace(self.folder / jar.file_name)

    def _under_lock(self, announce: Announce, work: Callable[[], None]) -> None:
        def waits(holder: str) -> None:
            announce(f"Waiting for process {holder} to download the jars ...")

        try:
            with exclusive(self.folder / "lock", on_wait=waits):
                work()
        except LockTimeoutError as error:
            raise JarMissing(
                f"process {error.holder} does not finish downloading jars into {self.folder}",
                fix=END_HOLDER,
            ) from error
        except OSError as error:
            raise JarMissing(
                f"cannot write jars to {self.folder}",
                why=error.strerror or str(error),
                fix=UNWRITABLE_FIX,
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

    def _verified(self, states: list[JarState]) -> list[JarState]:
        for state in states:
            if state.state == "corrupt":
                raise JarCorrupt(
                    f"{state.path} does not match the lock",
                    why=_difference(state),
                    fix=f"download it again: {_FIX}",
                )
        return states


def jar_status() -> list[JarState]:
    """Return the state of each jar of Tailrace's lock on this machine."""
    return _user_cache().status()


def jar_paths(set_name: str) -> list[Path]:
    """Return the verified paths of the jars of one set; see `JarCache.paths`."""
    return _user_cache().paths(set_name)


def ensure_jars(
    java: Java, sets: Sequence[str], announce: Announce, progress: ivy.Progress = _no_progress
) -> dict[str, list[Path]]:
    """Download the missing jars of the sets and return all paths; see `JarCache.ensure`."""
    return _user_cache().ensure(java, sets, announce=announce, progress=progress)


def repair_jars(java: Java, announce: Announce, progress: ivy.Progress = _no_progress) -> list[Jar]:
    """Download missing and corrupt jars, and return them; see `JarCache.repair`."""
    return _user_cache().repair(java, announce=announce, progress=progress)


def _user_cache() -> JarCache:
    # Resolved, because a class archive depends on the exact spelling of the class path.
    return JarCache((cache_dir() / "jars").resolve(), read_lock())


def _difference(state: JarState) -> str:
    if state.sha256 is None:
        return "the file is not readable"
    return f"its SHA-256 is {state.sha256}, and the lock says {state.jar.sha256}"
