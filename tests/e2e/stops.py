"""A pipeline that tests of stops and checkpoints start, stop and finish."""

import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import Kafka, wait_until
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.engine import has_tasks_at_work
from tailrace.errors import TailraceError
from tailrace.kafka.records import read_records
from tailrace.running.query import RunningQuery
from tailrace.running.summary import RunSummary

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class Query:
    """A pipeline from one topic to another, its checkpoint, and what it has written."""

    def __init__(self, kafka: Kafka, folder: Path, transform: Callable[[DataFrame], DataFrame] = lambda df: df) -> None:
        self.kafka = kafka
        self.source, self.sink = kafka.topic("in", 2), kafka.topic("out", 1)
        self.checkpoint = folder / "checkpoint"
        self.pipeline = tr.Pipeline(
            f"moments-{secrets.token_hex(4)}",
            tr.KafkaSource(self.source, "a long", starting="earliest"),
            transform,
            tr.KafkaSink(self.sink),
            malformed="drop",
        )

    def start(self, mode: str, **options: Any) -> RunningQuery:
        servers = self.kafka.bootstrap_servers
        return tr.start(self.pipeline, mode, bootstrap_servers=servers, checkpoint=self.checkpoint, **options)

    def finish(self, mode: str, **options: Any) -> RunSummary:
        where = {"bootstrap_servers": self.kafka.bootstrap_servers, "checkpoint": self.checkpoint}
        return tr.run(self.pipeline, mode, once=True, **where, **options)

    def rows(self) -> list[Any]:
        return [json.loads(record.value) for record in read_records(self.kafka.config, self.sink)]

    def written(self) -> Counter[int]:
        return Counter(row["a"] for row in self.rows())

    def logged(self, log: str) -> set[str]:
        folder = self.checkpoint / log
        return {file.name for file in folder.iterdir() if file.name.isdigit()} if folder.is_dir() else set()

    def require_stopped(self, running: RunningQuery, mode: str) -> None:
        """No task of it runs. A batch is half saved in micro-batch alone, if the next start repeats it."""
        wait_until(lambda: not has_tasks_at_work(running.query), 10, "its tasks end")
        assert not running.is_active
        unsaved = self.logged("offsets") - self.logged("commits")
        if mode == "realtime":
            assert unsaved == set()
        else:
            assert bool(unsaved) == bool(running.summary().repeats)


def held(began: Path, go_on: Path) -> Callable[[DataFrame], DataFrame]:
    """Return a function that notes its first row in a file, and finishes it when another file exists."""

    @F.udf("long")
    def wait(value):  # type: ignore[no-untyped-def]
        began.touch()
        deadline = time.monotonic() + 120
        while not go_on.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return value

    return lambda df: df.withColumn("a", wait("a"))


def collect(call: Callable[[], Any], outcome: list[Any]) -> None:
    try:
        outcome.append(call())
    except TailraceError as failed:
        outcome.append(failed)


STEPS = ["to commit the batch", "to say that it is done", "to begin the next one"]
"""What Spark's thread of a query needs its lock for between the tasks of two batches, in this order."""


@contextmanager
def held_between_batches(running: RunningQuery, step: int, end_tasks: Callable[[], None]) -> Iterator[None]:
    """Hold the thread of a query, whose tasks run, before one of the steps, and let it go on afterwards.

    The lock is fair: who asks for it while the thread waits gets it right after the thread's next step.
    """
    execution: Any = running.query._jsq.streamingQuery()  # type: ignore[attr-defined]
    thread = execution.queryExecutionThread()
    lock = field_of(execution, "awaitProgressLock")
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:  # each has a thread of its own in the JVM
        holder, other = first, second
        holder.submit(lock.lock).result(30)
        try:
            end_tasks()
            wait_until(lambda: lock.hasQueuedThread(thread), 60, f"the thread waits {STEPS[0]}")
            for each in STEPS[1 : step + 1]:
                next_turn = other.submit(lock.lock)
                wait_until(lambda: lock.getQueueLength() == 2, 30, "the next turn is ours")
                holder.submit(lock.unlock).result(30)
                holder, other = other, holder
                next_turn.result(30)
                wait_until(lambda: lock.hasQueuedThread(thread), 60, f"the thread waits {each}")
            yield
        finally:
            holder.submit(lock.unlock).result(30)


def field_of(holder: Any, name: str) -> Any:
    """The value of a private field that a class inherits."""
    kind = holder.getClass()
    while name not in [field.getName() for field in kind.getDeclaredFields()]:
        kind = kind.getSuperclass()
    field = kind.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
