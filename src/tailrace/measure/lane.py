"""A lane of a benchmark: a process that moves records from one topic to another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tailrace.measure.works import Work

Announce = Callable[[str], None]


class Trigger(StrEnum):
    """How Spark runs a query."""

    REALTIME = "realtime"
    MICROBATCH = "microbatch"
    CONTINUOUS = "continuous"


@dataclass(frozen=True)
class Cell:
    """The input of one run of a lane. Both topics and the folder are fresh.

    Attributes:
        work: What to compute.
        bootstrap_servers: The broker.
        source: The topic to read, from its first record.
        sink: The topic to write.
        partitions: The number of partitions of each topic.
        folder: For checkpoints, logs and ``events.jsonl``.
        checkpoint_every_s: The checkpoint interval, if the engine has checkpoints.
        trigger_every_ms: The interval between micro-batches, if the engine has batches.
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
        """The file in which the process reports its batches, one line of JSON each."""
        return self.folder / "events.jsonl"


@dataclass(frozen=True)
class Command:
    """How to start the process of a lane. It runs until SIGTERM."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the benchmark."""


class Lane(Protocol):
    """A lane. It holds no state of a run."""

    @property
    def name(self) -> str:
        """Its name on the command line and in results."""

    @property
    def title(self) -> str:
        """Its name for a reader of the report."""

    @property
    def works(self) -> frozenset[Work]:
        """What it can compute."""

    @property
    def is_baseline(self) -> bool:
        """Whether it has no engine, so that it is the lower bound of every other lane."""

    @property
    def trigger(self) -> Trigger | None:
        """How Spark runs it; None for any other engine."""

    @property
    def merges(self) -> bool:
        """Whether it may emit one update of a key for several records."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Everything that differs from the engine's own defaults, by the engine's own keys."""

    def prepare(self, announce: Announce) -> None:
        """Set up what it needs.

        Raises:
            LaneUnavailable: The set-up failed; the error says why.
        """

    def versions(self) -> Mapping[str, str]:
        """Return the version of its engine, once it is prepared."""

    def command(self, cell: Cell) -> Command | None:
        """Return the process to start, or None if there is no engine."""
