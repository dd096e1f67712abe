"""Python functions that fail, hang or kill their worker: the error names the record, and no other record is lost."""

import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from conftest import Kafka, of_sparks_env, wait_until
from generated import SOAK
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from python_kinds import KINDS, MAP_KINDS, doubling

import tailrace as tr
from tailrace.errors import UserCodeFailed
from tailrace.testing import run

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(600)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

SOME = KINDS if SOAK else ("udf", "pandas-iter", "map-arrow")
SENT = [{"a": number} for number in range(40)]


def pipeline(transform: Any, **more: Any) -> tr.Pipeline:
    name = f"failing-{secrets.token_hex(4)}"
    return tr.Pipeline(name, tr.KafkaSource(f"{name}-in", "a long"), transform, tr.KafkaSink(f"{name}-out"), **more)


def picky(value: int) -> int:
    if value % 10 == 7:
        raise ValueError(f"no {value}, please")
    return value * 2


def killing(value: int) -> int:
    if value == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return value * 2


def hungry(value: int) -> int:
    if value == 13:
        # As a worker is limited by spark.executor.pyspark.memory.
        limit = psutil.Process().memory_info().vms + (256 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
        held = [bytes(1 << 20) for _ in range(1024)]
        return len(held)
    return value * 2


def hanging(value: int) -> int:
    if value == 13:
        time.sleep(600)
    return value * 2


@pytest.mark.parametrize("kind", SOME)
def test_the_error_names_the_line_and_the_record(kind: str) -> None:
    here = pipeline(doubling(kind, picky))
    with pytest.raises(UserCodeFailed) as raised:
        run(here, SENT, "realtime")
    what = raised.value.what
    assert "ValueError: no" in what
    assert "test_python_failures.py line" in what
    assert "in picky" in what
    assert f"on record {here.name}-in-" in what
    assert 'raise ValueError(f"no {value}, please")' in (raised.value.detail or "")


def shortened(values: pd.Series) -> pd.Series:
    return values[1:]


def shortened_each(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for values in batches:
        yield values[1:]


@pytest.mark.parametrize("function", [shortened, shortened_each], ids=["series", "iterator"])
def test_a_vectorised_function_with_a_wrong_number_of_rows_is_found_by_its_line(function: Any) -> None:
    here = pipeline(lambda rows: rows.select(F.pandas_udf(function, "long")("a").alias("a")))
    with pytest.raises(UserCodeFailed) as raised:
        run(here, SENT, "realtime")
    what = raised.value.what
    assert f"test_python_failures.py line {function.__code__.co_firstlineno}" in what
    assert f"in {function.__name__}" in what


@pytest.mark.parametrize("kind", SOME)
def test_the_record_becomes_a_dead_letter_and_the_query_continues(kind: str) -> None:
    output = run(pipeline(doubling(kind, picky), python_errors="dead-letter"), SENT)
    require_all_but(output, lambda number: number % 10 == 7)
    assert {letter.header("tailrace.reason") for letter in output.dead_letters} == {b"python_error"}
    error = output.dead_letters[0].header("tailrace.error").decode()
    assert "ValueError: no" in error
    assert "(test_python_failures.py line" in error


@pytest.mark.parametrize("mode", ["batch", "microbatch"])
def test_dead_letters_in_the_other_modes(mode: str) -> None:
    for kind in ("udf", "map-pandas"):
        output = run(pipeline(doubling(kind, picky), python_errors="dead-letter"), SENT, mode)
        require_all_but(output, lambda number: number % 10 == 7)


@pytest.mark.parametrize("kind", ["udf", "map-pandas"])
def test_a_record_that_kills_every_worker(kind: str) -> None:
    output = run(pipeline(doubling(kind, killing), python_errors="dead-letter"), SENT)
    # A row of a map function is completed only when the function asks for the next batch.
    require_all_but(output, lambda number: number == 13, again=kind in MAP_KINDS)
    assert b"its worker was killed" in output.dead_letters[0].header("tailrace.error")
    with pytest.raises(UserCodeFailed, match=r"failed on record .*its worker was killed, ran out of memory or crashed"):
        run(pipeline(doubling(kind, killing)), SENT)


def test_a_function_that_kills_every_worker_fails_the_query() -> None:
    def deadly(_: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(UserCodeFailed, match="the Python workers of query"):
        run(pipeline(doubling("udf", deadly), python_errors="dead-letter"), SENT)


def test_a_map_function_without_output_does_not_block() -> None:
    def swallowed(frames: Any) -> Any:
        for frame in frames:
            if len(frame) < 0:
                yield frame

    here = pipeline(lambda rows: rows.mapInPandas(swallowed, "a long"))
    assert run(here, [{"a": number} for number in range(5000)]).rows == []


def test_a_model_that_cannot_be_loaded_ends_the_query_before_there_is_a_record(kafka: Kafka, tmp_path: Path) -> None:
    def scored(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        raise OSError("no such model")
        yield from batches

    here = tr.Pipeline(
        f"unloaded-{secrets.token_hex(4)}",
        tr.KafkaSource(kafka.topic("in", 1), "a long"),
        lambda rows: rows.select(F.pandas_udf(scored, "long")("a").alias("a")),
        tr.KafkaSink(kafka.topic("out", 1)),
    )
    where: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(UserCodeFailed, match="no such model"), tr.start(here, **where) as running:
        running.wait(60)


@pytest.mark.parametrize("kind", ["udf", "pandas"])
def test_a_record_that_uses_up_the_memory(kind: str) -> None:
    output = run(pipeline(doubling(kind, hungry), python_errors="dead-letter"), SENT)
    require_all_but(output, lambda number: number == 13)


@pytest.mark.parametrize(
    ("returns", "bad"),
    [
        ("double", np.float64(1.5)),
        ("array<double>", [np.float64(1.5)]),
        ("decimal(5,2)", Decimal("123456.78")),
        ("x int, y int", (1,)),
    ],
)
def test_a_result_that_spark_cannot_read_or_that_is_of_another_type(returns: str, bad: Any) -> None:
    good = {"double": 0.5, "array<double>": [0.5], "decimal(5,2)": Decimal("1.25"), "x int, y int": (1, 2)}[returns]
    function = F.udf(lambda value: bad if value == 13 else good, returns, useArrow=False)
    frames = lambda rows: rows.select("a", (2 * F.col("a")).alias("b"), function("a").alias("c"))  # noqa: E731
    output = run(pipeline(frames, python_errors="dead-letter"), SENT, "realtime")
    require_all_but(output, lambda number: number == 13)
    here = pipeline(frames)
    with pytest.raises(UserCodeFailed, match=f"on record {here.name}-in-.*result"):
        run(here, SENT, "realtime")


def test_if_no_result_is_readable_every_record_is_a_dead_letter() -> None:
    function = F.udf(np.float64, "double", useArrow=False)
    output = run(pipeline(lambda rows: rows.select("a", function("a").alias("c")), python_errors="dead-letter"), SENT)
    require_all_but(output, lambda _: True)
    assert all(b".item()" in letter.header("tailrace.error") for letter in output.dead_letters)


def test_time_that_others_spend_on_a_reply_does_not_count_for_the_time_limit(kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 1), kafka.topic("out", 1)

    @F.pandas_udf("long")
    def slow(values: pd.Series) -> pd.Series:
        time.sleep(0.8)  # for a thousand rows
        return values

    def frames(rows: DataFrame) -> DataFrame:
        many = F.udf(lambda value: [value] * 12, "array<long>", useArrow=False)
        return rows.select(F.explode(many("a")).alias("a")).select(slow("a").alias("a"))

    here = tr.Pipeline("late", tr.KafkaSource(source, "a long", starting="earliest"), frames, tr.KafkaSink(sink))
    kafka.send(source, [{"a": number} for number in range(3000)])
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "python_timeout": "2s"}
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, conf=conf, **options) as running:
        # A thousand results of the first function become twelve thousand rows; the second queues 8,192 of them.
        kafka.receive_count(sink, 14_000)
        costs = running.stop().python
    assert [cost.replaced for cost in costs.values()] == [0, 0]


@pytest.mark.parametrize("kind", SOME if SOAK else ["pandas", "map-arrow"])
def test_a_function_that_hangs(kafka: Kafka, kind: str, tmp_path: Path) -> None:
    source, sink, letters = kafka.topic("in", 1), kafka.topic("out", 1), kafka.topic("letters", 1)
    here = tr.Pipeline(
        f"hanging-{secrets.token_hex(4)}",
        tr.KafkaSource(source, "a long", starting="earliest"),
        doubling(kind, hanging),
        tr.KafkaSink(sink),
        python_errors="dead-letter",
        dead_letters=letters,
    )
    kafka.send(source, SENT)
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "python_timeout": "2s"}
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options) as running:
        written = kafka.receive(sink, lambda seen: len({row["a"] for _, row in seen}) == 39)
        if kind not in MAP_KINDS:  # their rows are completed only when the function asks for the next batch
            assert len(written) == 39
        assert kafka.receive_count(letters, 1)[0][1] == {"a": 13}
        (cost,) = running.stop().python.values()
    assert cost.replaced >= 2
    assert cost.failed == 1


@pytest.mark.parametrize("kind", ["udf", "pandas", "pandas-iter"] if SOAK else ["udf"])
def test_a_worker_that_is_killed_is_replaced(kafka: Kafka, kind: str, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 2), kafka.topic("out", 2)
    workers = tmp_path / "workers"
    workers.mkdir()

    def slow(value: int) -> int:
        (workers / str(os.getpid())).touch()
        time.sleep(0.002)
        return value * 2

    here = tr.Pipeline(
        f"killed-{kind}",
        tr.KafkaSource(source, "a long", starting="earliest"),
        doubling(kind, slow),
        tr.KafkaSink(sink),
    )
    kafka.send_to_every_partition(source, [{"a": number} for number in range(2000)])
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "checkpoint") as running:
        for _ in range(3):
            wait_until(lambda: alive(workers), 30, "a worker at work")
            time.sleep(0.3)
            for process in alive(workers):
                process.kill()
            for mark in workers.iterdir():
                mark.unlink()
        written = kafka.receive(sink, lambda seen: len({row["a"] for _, row in seen}) == 2000)
        assert len(written) == 2000, "nothing twice"
        (cost,) = running.stop().python.values()
    assert cost.replaced >= 3
    assert cost.failed == 0


def test_an_idle_worker_with_a_closed_channel_is_discarded(kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 2), kafka.topic("out", 2)
    workers = tmp_path / "workers"
    workers.mkdir()

    def marking(value: int) -> int:
        (workers / str(os.getpid())).touch()
        return value * 2

    here = tr.Pipeline("closed", tr.KafkaSource(source, "a long"), doubling("udf", marking), tr.KafkaSink(sink))

    def double_sent() -> None:
        kafka.send_to_every_partition(source, SENT)
        where: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
        conf = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1s"}
        assert tr.run(here, once=True, checkpoint_every="1s", conf=conf, **where).input_rows == len(SENT)

    idle: list[psutil.Process] = []
    for _ in range(5):  # a run may end in a batch that is cancelled, and its workers with it
        double_sent()
        if idle := alive(workers):
            break
    try:
        for process in idle:  # a running one would exit at once, and Spark itself skips workers that have exited
            process.suspend()
        assert close_idle_workers() >= len(idle) > 0
        known = len(list(workers.iterdir()))
        double_sent()
        assert len(list(workers.iterdir())) > known, "others did it"
    finally:
        for process in idle:
            process.kill()


def close_idle_workers() -> int:
    """Close the channels of idle workers, as Java does when a thread is interrupted while it writes."""
    closed = 0
    for factory in each(of_sparks_env(tr.session().sparkContext, "pythonWorkers").valuesIterator()):
        for worker in each(factory.idleWorkers().iterator()):
            worker.channel().close()
            closed += 1
    return closed


def each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def alive(workers: Path) -> list[psutil.Process]:
    return [psutil.Process(int(mark.name)) for mark in workers.iterdir() if psutil.pid_exists(int(mark.name))]


def require_all_but(output: Any, is_bad: Callable[[int], bool], *, again: bool = False) -> None:
    """Check that every other row was written once, or with `again` at least once."""
    results = [row["b"] for row in output.rows]
    assert sorted(set(results) if again else results) == [2 * number for number in range(40) if not is_bad(number)]
    assert sorted(letter.row["a"] for letter in output.dead_letters) == [n for n in range(40) if is_bad(n)]
