"""An engine as it is kept on this machine: a name, a version, a folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import LaneUnavailable, ToolchainError
from tailrace.toolchain import Java, cache_dir, ensure_java, find_java
from tailrace.toolchain.filelock import LockTimeoutError, exclusive

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
"""What the engines run, beside the lock files of what they need for it."""

_PATIENCE_S = 1800.0
"""How long one process waits for another that sets up the same engine: the largest takes minutes on a slow network."""

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Engine:
    """One engine in one version."""

    name: str
    version: str
    title: str
    """What a reader of the report calls it."""

    @property
    def programs(self) -> Path:
        """The folder of its program and its lock files."""
        return PROGRAMS / self.name.replace("-", "_")

    @property
    def folder(self) -> Path:
        """Where it is kept. It need not exist."""
        return cache_dir() / "engines" / f"{self.name}-{self.version}"

    def refused(self, why: str, fix: str, *, detail: str = "") -> LaneUnavailable:
        """The error that says what kept it from being set up."""
        return LaneUnavailable(f"{self.title} {self.version} could not be set up", why=why, fix=fix, detail=detail)

    @contextmanager
    def set_up(self, announce: Announce) -> Iterator[None]:
        """Hold the engine's folder against other processes; whatever refuses inside comes out as `LaneUnavailable`."""

        def waits(holder: str) -> None:
            announce(f"Another process ({holder}) is setting up {self.title}, waiting for it.")

        try:
            with exclusive(self.folder / "lock", on_wait=waits, timeout_s=_PATIENCE_S):
                yield
        except LockTimeoutError as error:
            raise self.refused(
                f"process {error.holder} has been setting it up for too long", "end that process and try again"
            ) from error
        except OSError as error:
            raise self.refused(
                f"{self.folder} cannot be written ({error.strerror or error})",
                "make room or give write permission there, or set TAILRACE_HOME to another folder",
            ) from error
        except ToolchainError as error:
            # Of another command's errors, what refused is right; its way out, `tailrace doctor --fix`, would mend
            # Tailrace's own jars and not these.
            why = error.what.rstrip(".") + (f": {error.why}" if error.why else "")
            raise self.refused(
                why, "connect to the network, where that is what refused, and try again", detail=error.detail or ""
            ) from error

    def java(self, announce: Announce) -> Java:
        """The Java to run it on, obtained where this machine has none."""
        try:
            return ensure_java(announce)
        except ToolchainError as error:
            raise self.refused(error.what, error.fix or "install Java 17, 21 or 25") from error

    def java_again(self) -> Java:
        """The Java that the set-up found."""
        java = find_java()
        if java is None:
            raise self.refused("the Java that was here is gone", "try again")
        return java
