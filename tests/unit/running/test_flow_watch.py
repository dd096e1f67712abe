"""The watch over a running query, without Spark."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError

from tailrace.engine import StageTasks
from tailrace.errors import PartitionsStarved, QueryRefused
from tailrace.running import flow, flow_watch
from tailrace.running.flow_watch import FlowWatch

from ..conftest import WaitUntil
from .fakes import FakeControl, at

STARVED = [StageTasks(2, 1, 0, 0, 60.0)]
WAIT_S = 20.0


class FakeQuery:
    """A query that runs until it is stopped."""

    lastProgress = None  # noqa: N815 - PySpark's own name

    def __init__(self, on_stop: Callable[[], None] = lambda: None) -> None:
        self.isActive = True
        self.failed: Exception | None = None
        self.stopped = threading.Event()
        self._on_stop = on_stop

    def exception(self) -> Exception | None:
        return self.failed

    def stop(self) -> None:
        self._on_stop()
        self.isActive = False
        self.stopped.set()


@pytest.fixture(autouse=True)
def starved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watch look all the time at a query with a task that has no slot."""
    monkeypatch.setattr(flow_watch, "_POLL_EVERY_S", 0.005)
    monkeypatch.setattr(flow, "PATIENCE_S", 0.0)
    monkeypatch.setattr(flow, "STARVED_S", 0.0)
    monkeypatch.setattr(flow_watch, "running_stages", lambda _query: STARVED)
    monkeypatch.setattr(flow_watch, "unread_partitions", lambda _query: ("in-1",))
    monkeypatch.setattr(flow_watch, "runs_in_real_time", lambda _query: True)
    monkeypatch.setattr(flow_watch, "has_jvm_ended", lambda _failed: False)


def watching(query: FakeQuery, control: Any = None, *, stops: bool = True, name: str = "fraud") -> FlowWatch:
    watched: Any = query
    return FlowWatch(watched, name, lambda _source, _partitions: {}, control, stops=stops)


def test_the_reason_is_known_before_the_query_is_inactive() -> None:
    known: list[Any] = []
    query = FakeQuery(lambda: known.append(watch.failed))
    watch = watching(query)
    watch.start()
    assert query.stopped.wait(WAIT_S)
    watch.end()
    assert isinstance(known[0], PartitionsStarved)
    assert "in-1 is not being read" in known[0].what


def test_a_query_that_has_failed_is_not_called_starved(monkeypatch: pytest.MonkeyPatch) -> None:
    query = FakeQuery()
    query.failed = ValueError("the cause")
    looks = threading.Semaphore(0)

    def stages(_query: Any) -> list[StageTasks]:
        looks.release()
        return STARVED

    monkeypatch.setattr(flow_watch, "running_stages", stages)
    watch = watching(query)
    watch.start()
    for _ in range(5):
        assert looks.acquire(timeout=WAIT_S)
    watch.end()
    assert watch.failed is None
    assert not query.stopped.is_set()


def test_the_end_does_not_wait_for_a_look_and_what_that_finds_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def stages(_query: Any) -> list[StageTasks]:
        looking.set()
        assert go_on.wait(WAIT_S)
        return STARVED

    monkeypatch.setattr(flow_watch, "running_stages", stages)
    query = FakeQuery()
    watch = watching(query)
    watch.start()
    assert looking.wait(WAIT_S)
    watch.end()
    assert watch._thread.is_alive()
    go_on.set()
    watch._thread.join(WAIT_S)
    assert watch.failed is None
    assert not query.stopped.is_set()


def test_a_stop_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_watch, "runs_in_real_time", lambda _query: False)
    monkeypatch.setattr(flow_watch, "running_stages", lambda _query: [])
    tries: list[int] = []

    def failing_twice() -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise Py4JError("the query did not stop in time")

    query = FakeQuery(failing_twice)
    query.lastProgress = {"batchId": 4}  # type: ignore[assignment]
    watch = watching(query)
    watch.start()
    assert query.stopped.wait(WAIT_S), "one try is not enough"
    watch.end()
    assert isinstance(watch.failed, QueryRefused)


def test_a_batch_whose_plan_could_not_be_seen_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_watch, "running_stages", lambda _query: [])
    answers = iter([Py4JError("not now")])

    def in_real_time(_query: Any) -> bool:
        for each in answers:
            raise each
        return False

    monkeypatch.setattr(flow_watch, "runs_in_real_time", in_real_time)
    query = FakeQuery()
    query.lastProgress = {"batchId": 4}  # type: ignore[assignment]
    watch = watching(query)
    watch.start()
    assert query.stopped.wait(WAIT_S)
    watch.end()


def test_a_query_that_cannot_be_watched_for_long_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = threading.Semaphore(0)

    def gone(_query: Any) -> Any:
        looks.release()
        raise Py4JError("An error occurred while calling o1.stages\nand more")

    monkeypatch.setattr(flow_watch, "running_stages", gone)
    monkeypatch.setattr(flow_watch, "_BLIND_S", 0.05)
    watch = watching(FakeQuery())
    with caplog.at_level(logging.WARNING, "tailrace"):
        watch.start()
        for _ in range(30):
            assert looks.acquire(timeout=WAIT_S)
        watch.end()
    (said,) = caplog.messages
    assert said.startswith("query 'fraud': its partitions could not be checked in the last ")
    assert said.endswith("An error occurred while calling o1.stages")


def test_it_ends_with_the_jvm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def lose(_query: Any) -> Any:
        raise Py4JError("no connection")

    monkeypatch.setattr(flow_watch, "running_stages", lose)
    monkeypatch.setattr(flow_watch, "has_jvm_ended", lambda _failed: True)
    monkeypatch.setattr(flow_watch, "_BLIND_S", 0.0)
    watch = watching(FakeQuery())
    watch.start()
    watch._thread.join(WAIT_S)
    assert not watch._thread.is_alive()
    assert not caplog.records


def test_progress_is_noted_at_every_poll() -> None:
    noted = threading.Semaphore(0)
    query: Any = FakeQuery()
    watch = FlowWatch(query, "fraud", lambda _source, _partitions: {}, None, noted.release, stops=False)
    watch.start()
    assert noted.acquire(timeout=WAIT_S)
    assert noted.acquire(timeout=WAIT_S)
    watch.end()


def test_waits_are_said_apart_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(flow_watch, "running_stages", lambda _query: [StageTasks(2, 2, 0, 0, 60.0)])
    control = FakeControl()
    watch = watching(FakeQuery(), control, stops=False, name="slow-then-stalled")
    with caplog.at_level(logging.WARNING, "tailrace"):
        watch.start()
        for waited_ms in range(1000, 6000, 1000):
            control.readers = [at("in-0", waits_for="downstream", waited_ms=waited_ms), at("in-1", task=1)]
            wait_until(lambda ms=waited_ms: bool(watch.slow) or ms < 4000, "it is slow")
        held = "in-0: one record or Python call has taken longer than 3 s"
        assert (watch.starved, watch.stalled, watch.slow) == ("", "", held)
        control.readers = [at("in-0", unanswered_ms=5000), at("in-1", task=1, unanswered_ms=5000)]
        wait_until(lambda: bool(watch.stalled), "the broker is silent")
        assert (watch.starved, watch.stalled, watch.slow) == ("", "in: no broker responds", "")
        control.readers = [at("in-0"), at("in-1", task=1)]
        wait_until(lambda: not watch.stalled, "the broker responds")
        watch.end()
    own = [each for each in caplog.messages if "'slow-then-stalled'" in each]
    assert own == [f"query 'slow-then-stalled': {held}"], "a watch of another test may not have noticed its end yet"


def test_a_task_without_a_slot_is_logged_before_the_query_is_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(flow, "PATIENCE_S", 3600.0)
    query, control = FakeQuery(), FakeControl()
    control.readers = [at("in-0"), at("in-1", task=1, is_read=False, waits_for="")]
    watch = watching(query, control)
    with caplog.at_level(logging.WARNING, "tailrace"):
        watch.start()
        wait_until(lambda: bool(watch.starved), "it is said")
        watch.end()
    assert watch.starved == "in-1 is not being read"
    assert watch.failed is None
    assert query.isActive
    assert caplog.messages == ["query 'fraud': in-1 is not being read"]
