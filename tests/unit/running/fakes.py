"""Stand-ins for Spark's side of a running query."""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.engine import ReaderPosition


class FakeCheckpoint:
    location = "/checkpoints/fraud"

    def __init__(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False

    def save_costs(self, costs: object) -> None:
        assert self.held


class FakeCounts:
    def __init__(self, **malformed: int) -> None:
        self._malformed = malformed

    def malformed(self) -> dict[str, int]:
        return self._malformed

    def read(self) -> int:
        return sum(self._malformed.values())

    def settle(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """Nothing is open."""


class FakeQuery:
    """A query whose batches are listed beforehand; while it runs, each look shows one more."""

    def __init__(self, *batches: int) -> None:
        self.isActive = True
        self.did: list[str] = []
        self.status: dict[str, Any] = {"isTriggerActive": False}
        self._batches = [
            {"batchId": number, "numInputRows": 2, "sources": [{"endOffset": {"payments": {"0": offset}}}]}
            for number, offset in enumerate(batches)
        ]
        self._polls = -1

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's own name
        self._polls += self.isActive
        return self._batches[: self._polls]

    def stop(self) -> None:
        self.did.append("stop")
        self.isActive = False


class FakeClock:
    """Stands for the module `time`; sleeping advances it and lets something happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[int, Callable[[], None]] = {}
        """What happens during a sleep, by the number of the sleep."""
        self._sleeps = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self._sleeps += 1
        assert self._sleeps < 100_000, "it would wait for ever"
        self.now += seconds
        self.at.pop(self._sleeps, lambda: None)()


class FakeControl:
    """The control of a run. A test sets what it reports."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.ended = False
        self.idle = False
        self.short_retries = False
        self.saved = True
        self.batch: int | None = 7
        """The batch that a request ends; None while it waits for the next one."""
        self.committed: set[int] = set()
        self.logged: tuple[int | None, int | None] = (None, None)
        self.pause: float | None = 80.0
        self.readers: list[ReaderPosition] = []
        self.new: list[str] = []
        """The partitions that its topics have gained."""
        self.said: list[dict[str, Any]] = []
        """What it says of its topics, once."""
        self.asked = 0
        self.failure: Exception | None = None
        self.more_tasks: int | None = None
        self.unsaved = 0

    def stop(self) -> None:
        self.did.append("stop")

    def has_ended(self) -> bool:
        return self.ended

    def is_idle(self) -> bool:
        return self.idle

    def notices(self) -> list[dict[str, Any]]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        said, self.said = self.said, []
        return said

    def has_short_retries(self) -> bool:
        return self.short_retries

    def is_saved(self) -> bool:
        return self.saved

    def end_batch(self) -> None:
        self.did.append("end batch")

    def last_ended(self) -> int | None:
        return self.batch

    def is_committed(self, batch: int) -> bool:
        return batch in self.committed

    def latest_logged(self) -> tuple[int | None, int | None]:
        return self.logged

    def pause_ms(self, _batch: int) -> float | None:
        return self.pause

    def positions(self) -> list[ReaderPosition]:
        return self.readers

    def new_partitions(self) -> list[str]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.new

    def unsaved_records(self) -> int:
        return self.unsaved

    def allow_tasks(self, more: int) -> None:
        self.more_tasks = more

    def close(self) -> None:
        self.did.append("close")


class FakeEndpoint:
    """A source on a cluster that is a dictionary of topics, each a list with the end of every partition."""

    def __init__(self, topics: dict[str, list[int]], **options: str) -> None:
        self.topics = topics
        self.options = options
        self.asked = 0
        self.failure: Exception | None = None

    def source_partitions(self) -> dict[str, int] | None:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return {topic: len(ends) for topic, ends in self.topics.items()}

    def ends(self, partitions: Mapping[str, int]) -> dict[str, dict[int, int]] | None:
        return {topic: dict(enumerate(self.topics[topic][:count])) for topic, count in partitions.items()}


def at(name: str, offset: int = 0, **more: Any) -> ReaderPosition:
    """A reader of the partition with this name; it waits for records, and there are none."""
    topic, _, partition = name.rpartition("-")
    facts: dict[str, Any] = {
        "source": 0, "task": 0, "safe": offset, "end": offset, "records": 0, "bytes": 0, "last_record_ms": 0,
        "is_read": True, "waits_for": "records", "waited_ms": 0, "unanswered_ms": 100,
    }  # fmt: skip
    return ReaderPosition(topic=topic, partition=int(partition), offset=offset, **(facts | more))
