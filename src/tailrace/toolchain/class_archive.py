"""A class-data-sharing archive: Java maps already loaded classes into a new JVM instead of loading them again.

Half of the processor time of a start goes into finding, parsing and verifying some 17,000 classes. An archive belongs
to one Java build and one class path; Java itself ignores one that does not fit. It is written once, from a list of
class names in this package, into the user's cache: never into the Java installation.
"""

import contextlib
import gzip
import hashlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.java import Java
from tailrace.toolchain.leash import LeashedProcess
from tailrace.toolchain.places import cache_dir
from tailrace.toolchain.staging import staging

_LISTS = Path(__file__).parent / "classes"
SWITCH = "TAILRACE_CLASS_ARCHIVE"
"""The environment variable that, if it is ``off``, keeps archives from being written and used."""
_KEPT = 3
"""Archives of one name that stay; each takes some 200 MB."""
_WRITE_TIMEOUT_S = 180.0
_FIRST_SIGNAL = 128
"""Exit codes from here on mean that a signal ended the process."""
_DELAY_S = 10.0
"""A program that is over by then would only have wasted the work; and its start is not slowed down."""
_LOWEST_PRIORITY = ("nice", "-n", "19")
"""POSIX has it everywhere: the archive is never as urgent as what the user runs."""


class ArchiveNotWrittenError(Exception):
    """Java did not write the archive; the message says why."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one kind of JVM, on one Java and one class path.

    Attributes:
        name: Which JVM it is for: ``spark`` or ``broker``.
        java: The Java that writes and uses it.
        files: The jars on the class path; another file, size or time means another archive.
        settings: What else decides the class path, such as environment variables.
    """

    name: str
    java: Java
    files: tuple[Path, ...]
    settings: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Where the archive is, or would be."""
        return _folder() / f"{self.name}-{self._key()}.jsa"

    @property
    def is_written(self) -> bool:
        """Whether it can be used."""
        return self.path.is_file()

    @property
    def is_off(self) -> bool:
        """Whether the user wants none."""
        return os.environ.get(SWITCH, "").lower() == "off"

    @property
    def refusal(self) -> str:
        """Why it is not written, or nothing."""
        if self.is_off:
            return f"{SWITCH} is off"
        with contextlib.suppress(OSError):
            return self._refused.read_text(encoding="utf-8").strip()
        return ""

    def options(self) -> list[str]:
        """Return the JVM options that use it; none if it is not written."""
        if self.refusal:
            return []
        path = self.path
        try:
            os.utime(path)  # the archives used last are the ones that stay
        except FileNotFoundError:
            return []
        except OSError:  # another user's cache, perhaps: it can still be read
            pass
        return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]

    def write(self, class_path: str) -> None:
        """Write it, unless another process does so first; also if Java refused before.

        Args:
            class_path: The class path exactly as the JVM gets it.

        Raises:
            ArchiveNotWrittenError: It is switched off, Java refused, or the cache cannot be written.
        """
        if self.is_off:
            raise ArchiveNotWrittenError(self.refusal)
        try:
            with exclusive(_folder() / "lock", on_wait=lambda _: None):
                self._write_under_lock(class_path)
        except (OSError, LockTimeoutError, subprocess.SubprocessError) as failed:
            raise ArchiveNotWrittenError(str(failed)) from failed

    def write_in_background(self, class_path: str, delay_s: float = _DELAY_S) -> threading.Thread:
        """Write it beside the program's own work, at the lowest priority; return the thread.

        The writing ends with the program. If another process writes it already, this one does nothing.
        """

        def work() -> None:
            time.sleep(delay_s)
            # Without an archive the next start is as slow as this one; nothing else is lost.
            with (
                contextlib.suppress(ArchiveNotWrittenError, OSError, LockTimeoutError, subprocess.SubprocessError),
                exclusive(_folder() / "lock", on_wait=lambda _: None, patience_s=0),
            ):
                self._write_under_lock(class_path)

        thread = threading.Thread(target=work, name=f"class archive of {self.name}", daemon=True)
        thread.start()
        return thread

    @property
    def _refused(self) -> Path:
        return self.path.with_suffix(".refused")

    def _write_under_lock(self, class_path: str) -> None:
        if self.is_written:
            return
        with staging(_folder()) as folder:
            names, written, output = folder / "classes.list", folder / "classes.jsa", folder / "output"
            names.write_bytes(gzip.decompress(_list_of(self.name).read_bytes()))
            code = _dump(self._command(class_path, names, written), output)
            if code != 0 or not written.is_file():
                reason = (output.read_text(errors="replace").strip().splitlines() or ["Java gave no reason"])[-1]
                if code is not None and code < _FIRST_SIGNAL:
                    # Java itself said no, and would again. Whatever killed it, or kept it waiting, may pass.
                    self._refused.write_text(reason + "\n", encoding="utf-8")
                raise ArchiveNotWrittenError(reason)
            written.replace(self.path)
            self._refused.unlink(missing_ok=True)
        self._prune()

    def _command(self, class_path: str, names: Path, written: Path) -> list[str]:
        return [
            *_LOWEST_PRIORITY,
            str(self.java.executable),
            *("-Xshare:dump", f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={written}"),
            # Thousands of warnings about classes that cannot be archived say nothing that a user could act on.
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
            *("-cp", class_path),
        ]

    def _prune(self) -> None:
        archives = sorted(_folder().glob(f"{self.name}-*.jsa"), key=_modified, reverse=True)
        for old in archives[_KEPT:]:
            old.unlink(missing_ok=True)  # a JVM that uses it keeps its pages

    def _key(self) -> str:
        digest = hashlib.sha256()
        for part in self._parts():
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:16]

    def _parts(self) -> Iterator[str]:
        yield self.java.version
        yield hashlib.sha256(_list_of(self.name).read_bytes()).hexdigest()
        yield from self.settings
        # A runtime behind a shim has its modules elsewhere; its own path is in the executable's text.
        for file in (self.java.home / "lib" / "modules", self.java.executable, *self.files):
            with contextlib.suppress(OSError):
                stat = file.stat()
                yield f"{file}|{stat.st_size}|{stat.st_mtime_ns}"


def write_list(name: str, classes: Path) -> int:
    """Replace the package's list by what a JVM wrote with ``-XX:DumpLoadedClassList``; return its length."""
    lines = {
        line if line.startswith("@") else line.split()[0]
        for line in classes.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    text = "".join(f"{line}\n" for line in sorted(lines))
    _list_of(name).write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(lines)


def _list_of(name: str) -> Path:
    return _LISTS / f"{name}.list.gz"


def _folder() -> Path:
    return cache_dir() / "classes"


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0


def _dump(command: Sequence[str], output: Path) -> int | None:
    """Run Java until the archive is written; return its exit code, or None if it took too long."""
    with output.open("wb") as words:
        process = LeashedProcess(command, output=words)
    deadline = time.monotonic() + _WRITE_TIMEOUT_S
    try:
        while (code := process.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return code
    finally:
        process.stop()
