"""`running.checkpoint()` returns when the progress is saved."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, suspended, wait_until
from load import Load
from pyspark.sql import functions as F
from stops import STEPS, Query, collect, held, held_between_batches

from tailrace.engine import RunControl
from tailrace.errors import QueryFailed, TailraceError
from tailrace.kafka.broker import Broker
from tailrace.running.saving import SavedCheckpoint

pytestmark = pytest.mark.usefixtures("spark")


class TestCheckpointOnRequest:
    """`running.checkpoint()` returns when the progress is saved."""

    def test_it_saves_what_was_read(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        query = Query(kafka, tmp_path)
        with Load(kafka, [query.source]) as load:
            running = query.start(mode)
            wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
            saved = running.checkpoint()
            assert str(saved.number) in query.logged("commits")
            assert saved.pause_ms is not None
            if mode == "realtime":
                assert 0 < saved.pause_ms < 10_000
                later = running.checkpoint()
                assert later.number == (saved.number or 0) + 1
            running.stop()
        query.finish(mode)
        assert query.written() == Counter(range(load.sent))

    @pytest.mark.parametrize("mode", ["realtime"])
    def test_a_crash_after_it_repeats_nothing(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        query = Query(kafka, tmp_path)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(50)])
        running = query.start(mode)
        kafka.receive_count(query.sink, 50)
        running.checkpoint()
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(50, 60)])
        kafka.receive_count(query.sink, 60)
        assert running.stop(0).repeats == "a stop timeout of 0 leaves no time to save"
        query.finish(mode)
        assert query.written() == Counter(range(60))

    def test_an_idle_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        with Query(kafka, tmp_path).start(mode) as running:
            began = time.monotonic()
            saved = running.checkpoint()
            assert time.monotonic() - began < 20
            assert saved.number == (0 if mode == "realtime" else None)

    def test_several_at_once_while_a_batch_runs(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        began, go_on = tmp_path / "began", tmp_path / "go on"
        query = Query(kafka, tmp_path, held(began, go_on))
        kafka.send(query.source, [{"a": 1}])
        with query.start(mode) as running:
            wait_until(began.exists, 60, "a row waits")
            outcomes: list[Any] = []
            saves = [threading.Thread(target=collect, args=(running.checkpoint, outcomes)) for _ in range(4)]
            for save in saves:
                save.start()
            assert running._saving is not None
            wait_until(lambda: running._saving._current, 30, "the first of them")  # type: ignore[union-attr]
            assert outcomes == [], "none returns before the batch is saved"
            go_on.touch()
            for save in saves:
                save.join(60)
            assert [type(outcome) for outcome in outcomes] == [SavedCheckpoint] * 4, outcomes
            assert {str(outcome.number) for outcome in outcomes} <= query.logged("commits")

    @pytest.mark.parametrize("mode", ["realtime"])
    @pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
    def test_a_request_between_two_batches_is_not_lost(
        self, kafka: Kafka, mode: str, step: int, tmp_path: Path
    ) -> None:
        """It returns with the batch that is about to be committed, or else it ends the next one."""
        query = Query(kafka, tmp_path)
        with query.start(mode) as running:
            control = running._ending.control
            assert control is not None
            kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20)])
            kafka.receive_count(query.sink, 20)
            outcome: list[Any] = []
            saving = threading.Thread(target=collect, args=(running.checkpoint, outcome))
            with held_between_batches(running, step, control.end_batch):
                saving.start()
                if step:
                    wait_until(lambda: control.last_ended() is None, 30, "the request waits for the next batch")
                else:
                    wait_until(lambda: running._saving._current, 30, "the request")  # type: ignore[union-attr]
            saving.join(60)
            (saved,) = outcome
            assert saved.number == (1 if step else 0)
            assert str(saved.number) in query.logged("commits")
        query.finish(mode)
        assert query.written() == Counter(range(20))

    @pytest.mark.parametrize("mode", ["realtime"])
    def test_ctrl_c_during_the_pause_leaves_no_caller_waiting(
        self, broker: Broker, kafka: Kafka, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While no broker responds, no batch begins, so the pause does not end."""
        joined: list[Any] = []

        def last_ended(control: RunControl) -> int | None:
            assert running._saving is not None
            assert running._saving._current is not None
            joined.append(running._saving._current)  # what other calls wait for
            return ended(control)

        def interrupt(_control: RunControl, _batch: int) -> None:
            raise KeyboardInterrupt

        ended = RunControl.last_ended
        query = Query(kafka, tmp_path)
        with query.start(mode) as running:
            kafka.send(query.source, [{"a": 1}])
            kafka.receive_count(query.sink, 1)
            with suspended(broker):
                monkeypatch.setattr(RunControl, "last_ended", last_ended)
                monkeypatch.setattr(RunControl, "pause_ms", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    running.checkpoint()
                assert joined[0].result(30) == SavedCheckpoint(0, None)
                assert query.logged("commits") == {"0"}
            monkeypatch.undo()
        query.finish(mode)
        assert query.written() == Counter([1])

    def test_a_stop_ends_a_call_that_waits_for_a_broker(
        self, broker: Broker, kafka: Kafka, mode: str, tmp_path: Path
    ) -> None:
        query = Query(kafka, tmp_path)
        running = query.start(mode)
        kafka.send(query.source, [{"a": 1}])
        kafka.receive_count(query.sink, 1)
        outcomes: list[Any] = []
        with suspended(broker):
            saves = [threading.Thread(target=collect, args=(running.checkpoint, outcomes)) for _ in range(2)]
            for save in saves:
                save.start()
            running.stop(5)
            for save in saves:
                save.join(50)
                assert not save.is_alive(), "its own timeout is a minute"
        assert all(isinstance(outcome, SavedCheckpoint | QueryFailed) for outcome in outcomes), outcomes

    def test_a_failed_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        @F.udf("long")
        def fail(value):  # type: ignore[no-untyped-def]
            raise ValueError(f"no {value}")

        query = Query(kafka, tmp_path, lambda df: df.withColumn("a", fail("a")))
        running = query.start(mode)
        kafka.send(query.source, [{"a": 1}])
        wait_until(lambda: not running.is_active, 30, "it fails")
        with pytest.raises(TailraceError, match="no 1"):
            running.checkpoint()
        running.stop()

    def test_a_stopped_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        running = Query(kafka, tmp_path).start(mode)
        running.stop()
        with pytest.raises(QueryFailed, match="is not running"):
            running.checkpoint()
