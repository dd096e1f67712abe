"""Stand-ins for Spark's side of a running query."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


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
        self._looks = -1

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's own name
        self._looks += self.isActive
        return self._batches[: self._looks]

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
        self.unknown_retries = False
        self.batch: int | None = 7
        """The batch that a request ends; None while it waits for the next one."""
        self.committed: set[int] = set()
        self.logged: tuple[int | None, int | None] = (None, None)
        self.pause: float | None = 80.0

    def stop(self) -> None:
        self.did.append("stop")

    def has_ended(self) -> bool:
        return self.ended

    def is_idle(self) -> bool:
        return self.idle

    def has_unknown_retries(self) -> bool:
        return self.unknown_retries

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

    def close(self) -> None:
        self.did.append("close")
