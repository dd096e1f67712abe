"""One lane of a benchmark: a process that moves records from one topic to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tailrace.bench.work import Work

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """What one run of a lane is given. Both topics and the folder are its own and fresh.

    Attributes:
        work: What is to be computed.
        bootstrap_servers: The broker.
        source: The topic to read, from its first record on.
        sink: The topic to write.
        partitions: How many partitions each of the two has.
        folder: For checkpoints, logs and ``events.jsonl``.
        checkpoint_every_s: How often an engine that saves its progress at intervals is to do so.
        trigger_every_ms: How often a batch starts, where there are batches.
    """

    work: Work
    bootstrap_servers: str
    source: str
    sink: str
    partitions: int
    folder: Path
    checkpoint_every_s: float = 300.0
    trigger_every_ms: int = 500

    @property
    def events(self) -> Path:
        """Where the process notes what a measurement wants to know, a line of JSON each."""
        return self.folder / "events.jsonl"


@dataclass(frozen=True)
class Command:
    """How a lane's process is started. It runs until SIGTERM."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of the environment of the benchmark itself."""


class Lane(Protocol):
    """A lane. It holds no state of a run."""

    @property
    def name(self) -> str:
        """The word for it on the command line and in results."""

    @property
    def title(self) -> str:
        """What a reader of the report sees."""

    @property
    def works(self) -> frozenset[Work]:
        """What it can compute."""

    @property
    def merges(self) -> bool:
        """Whether it may give one update of a key where several records changed it."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Everything that differs from the engine's own defaults, by the engine's own keys."""

    def prepare(self, announce: Announce) -> None:
        """Set up what it needs.

        Raises:
            LaneUnavailable: It cannot be set up here; the error says what refused.
        """

    def versions(self) -> Mapping[str, str]:
        """The engine and its version, once it is prepared."""

    def command(self, cell: Cell) -> Command | None:
        """The process to start, or None where there is no engine at all."""
