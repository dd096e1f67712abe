"""Class-data-sharing (CDS) archives: a new JVM maps loaded classes into memory instead of loading them again.

A start spends half of its CPU time on finding, parsing and verifying about 17,000 classes. An archive belongs to one
Java build and one class path; Java ignores an archive that does not match. Tailrace writes it once, from a list of
class names in this package, into the user's cache. It never changes the Java installation.
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

from tailrace.toolchain.directories import cache_dir
from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.guarded_process import GuardedProcess
from tailrace.toolchain.java import Java
from tailrace.toolchain.staging import staging

_LISTS = Path(__file__).parent / "classes"
SWITCH = "TAILRACE_CLASS_ARCHIVE"
"""The environment variable that disables archives if it is ``off``."""
_KEPT = 3
"""How many archives of one name to keep; each takes about 200 MB."""
_WRITE_TIMEOUT_S = 180.0
_FIRST_SIGNAL = 128
"""An exit code from here on means that a signal ended the process."""
_DELAY_S = 10.0
"""Short programs write no archive, and the start of a long one does not compete with it for CPU time."""
_LOWEST_PRIORITY = ("nice", "-n", "19")
"""What the user runs comes first. Every POSIX system has ``nice``."""


class ArchiveNotWrittenError(Exception):
    """Java did not write the archive; the message says why."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive for one kind of JVM, one Java build and one class path.

    Attributes:
        name: The kind of JVM: ``spark`` or ``broker``.
        java: The Java that writes and uses it.
        files: The jars on the class path. A change of path, size or modification time means a new archive.
        settings: Other values that determine the class path, such as environment variables.
    """

    name: str
    java: Java
    files: tuple[Path, ...]
    settings: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The path of the archive, written or not."""
        return _folder() / f"{self.name}-{self._key()}.jsa"

    @property
    def is_written(self) -> bool:
        """Whether the archive exists."""
        return self.path.is_file()

    @property
    def is_off(self) -> bool:
        """Whether the user disabled archives."""
        return os.environ.get(SWITCH, "").lower() == "off"

    @property
    def refusal(self) -> str:
        """Why no archive is written, or an empty string."""
        if self.is_off:
            return f"{SWITCH} is off"
        with contextlib.suppress(OSError):
            return self._refused.read_text(encoding="utf-8").strip()
        return ""

    def options(self) -> list[str]:
        """Return the JVM options that use the archive, or none if it does not exist."""
        if self.refusal:
            return []
        path = self.path
        try:
            os.utime(path)  # pruning keeps the most recently used archives
        except FileNotFoundError:
            return []
        except OSError:  # a read-only cache: the archive still works
            pass
        return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto"]

    def write(self, class_path: str) -> None:
        """Write the archive unless another process writes it first. Try again if Java refused before.

        Args:
            class_path: The exact class path of the JVM.

        Raises:
            ArchiveNotWrittenError: Archives are disabled, Java refused, or the cache is not writable.
        """
        if self.is_off:
            raise ArchiveNotWrittenError(self.refusal)
        try:
            with exclusive(_folder() / "lock", on_wait=lambda _: None):
                self._write_under_lock(class_path)
        except (OSError, LockTimeoutError, subprocess.SubprocessError) as failed:
            raise ArchiveNotWrittenError(str(failed)) from failed

    def write_in_background(self, class_path: str, delay_s: float = _DELAY_S) -> threading.Thread:
        """Write the archive in a background thread, at the lowest priority, and return the thread.

        The work stops when the program ends. If another process is writing the archive, this one does nothing.
        """

        def work() -> None:
            time.sleep(delay_s)
            # A missing archive only makes the next start slower.
            with (
                contextlib.suppress(ArchiveNotWrittenError, OSError, LockTimeoutError, subprocess.SubprocessError),
                exclusive(_folder() / "lock", on_wait=lambda _: None, timeout_s=0),
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
                    # Java refused, and would refuse again. A signal or a timeout may be temporary.
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
            # Java prints thousands of warnings about classes that it cannot archive; users can do nothing about them.
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
            *("-cp", class_path),
        ]

    def _prune(self) -> None:
        archives = sorted(_folder().glob(f"{self.name}-*.jsa"), key=_modified, reverse=True)
        for old in archives[_KEPT:]:
            old.unlink(missing_ok=True)  # a running JVM keeps its mapping

    def _key(self) -> str:
        digest = hashlib.sha256()
        for part in self._parts():
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:16]

    def _parts(self) -> Iterator[str]:
        yield self.java.version
        yield hashlib.sha256(_list_of(self.name).read_bytes()).hexdigest()
        yield from self.settings
        # With a shim the modules are in another home, but the shim's script contains that path.
        for file in (self.java.home / "lib" / "modules", self.java.executable, *self.files):
            with contextlib.suppress(OSError):
                stat = file.stat()
                yield f"{file}|{stat.st_size}|{stat.st_mtime_ns}"


def write_list(name: str, classes: Path) -> int:
    """Replace a class list of this package with the output of ``-XX:DumpLoadedClassList``; return its length."""
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
    """Run Java until it has written the archive; return its exit code, or None on a timeout."""
    with output.open("wb") as words:
        process = GuardedProcess(command, output=words)
    deadline = time.monotonic() + _WRITE_TIMEOUT_S
    try:
        while (code := process.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        return code
    finally:
        process.stop()
