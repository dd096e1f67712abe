"""What the check says of a query is what Spark then does with it, for every query of the corpus."""

import time
from pathlib import Path
from typing import Any

import corpus_python  # its cases join the others
import pytest
from conftest import Kafka
from corpus import Case, Sources, cases
from generated import SOAK
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import tailrace as tr
from tailrace import engine
from tailrace.kafka.topics import log_ends
from tailrace.preflight.checks import python_function, slots_missing
from tailrace.preflight.finding import Severity
from tailrace.prepare.options import RunOptions
from tailrace.prepare.writer_target import WriterTarget
from tailrace.running.flow import still_partitions
from tailrace.tuning import query_settings

CASES = list(cases())
TRIED = [
    case for at, case in enumerate(CASES) if SOAK or at % 3 == 0 or case.build.__module__ != corpus_python.__name__
]
"""All of Spark's own, and a third of those with Python, which take the same few ways; `make soak` tries every one."""
_PATIENCE_S = 20.0
_BATCH_MS = 600
_A_MOMENT_S = 0.3
"""For how long a task may be seen waiting, in one batch."""
CONF = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.realTimeMode.minBatchDuration": str(_BATCH_MS)}


@pytest.fixture(scope="module")
def sources(spark: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    kafka = Kafka(broker.bootstrap_servers)
    slots = engine.capacity(spark).slots
    topics = [kafka.topic("corpus", 2), kafka.topic("corpus-other", 1), kafka.topic("corpus-wide", slots + 4)]
    for topic in topics:
        kafka.send_to_every_partition(topic, [event(number) for number in range(60)])
    return Sources(spark, broker.bootstrap_servers, *topics, str(tmp_path_factory.mktemp("corpus")))


def event(number: int) -> dict[str, Any]:
    return {
        "id": number, "key": "abc"[number % 3], "amount": number % 10, "tags": ["x", "y"],
        "time": f"2026-11-15T10:00:{number % 60:02d}Z",
    }  # fmt: skip


def test_the_corpus_is_large_and_has_every_verdict() -> None:
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.verdict for case in CASES} == {"runs", "refused", "starves"}


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_the_check_says_what_spark_does(case: Case, sources: Sources, kafka: Kafka, tmp_path: Path) -> None:
    writer = writer_of(case, sources, kafka, tmp_path)
    report = tr.check(writer, checkpoint_every="1s", conf=CONF)
    errors = {finding.code for finding in report.findings if finding.severity is Severity.ERROR}
    said = "refused" if errors else "runs"
    if errors == {slots_missing.CODE} and report.slots is not None and len(report.slots.stages) == 1:
        said = "starves"
    assert (said, done_by_spark(writer, kafka)) == (case.verdict, case.verdict), report.as_json()
    for finding in report.findings:
        assert finding.code != python_function.CODE or finding.severity is Severity.ADVICE, "the engine runs them"
        assert finding.title
        assert finding.why
        assert finding.fix


def writer_of(case: Case, sources: Sources, kafka: Kafka, folder: Path) -> Any:
    query = case.build(sources)
    if isinstance(query, DataFrame):
        rows = query if query.columns == ["value"] else query.selectExpr("to_json(struct(*)) as value")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", sources.servers)
        query = writer.option("topic", kafka.topic("corpus-out", 1))
    return query.outputMode(case.output_mode).option("checkpointLocation", str(folder / "checkpoint"))


def done_by_spark(writer: Any, kafka: Kafka) -> str:
    """Start it in real time as Tailrace does, Python functions included, without the checks before a start, and see."""
    own = engine.clone_session(engine.writer_frame(writer).sparkSession)
    for key, value in {**query_settings(realtime=True, local=True), **CONF}.items():
        own.conf.set(key, value)
    built = WriterTarget(writer, RunOptions()).build(own, RunOptions())
    engine.allow_operators(built.frame)
    started: Any = built.writer
    try:
        query = started.trigger(realTime=f"{_BATCH_MS} milliseconds").start()
    except PySparkException as error:
        print(error)
        return "refused"
    try:
        verdict = seen(query)
    finally:
        query.stop()
    topic = engine.writer_settings(writer).options.get("topic")
    if verdict == "runs" and topic is not None:
        assert log_ends(kafka.config, {topic: 1})[topic][0] > 0, "it runs and produces nothing"
    return verdict


def seen(query: Any) -> str:
    """What Spark does with a query, as far as it can be seen from outside."""
    deadline = time.monotonic() + _PATIENCE_S
    read, batch = False, -1
    waits_since: float | None = None
    waited_s = 0.0
    while time.monotonic() < deadline:
        if (failed := query.exception()) is not None:
            print(failed)  # shown beside a test that fails
            return "refused"
        progress, stages = query.lastProgress, engine.running_stages(query)
        read = read or (progress is not None and progress["numInputRows"] > 0)
        if progress is not None and progress["batchId"] >= 2 and still_partitions(progress):
            return "starves"
        ended = progress["batchId"] if progress is not None else -1
        # For a moment tasks wait at the beginning of a batch, longer in a cold JVM; those that starve run at its end.
        if ended != batch:
            batch, waits_since, waited_s = ended, None, 0.0
        if any(stage.waiting for stage in stages):
            waits_since = waits_since or time.monotonic()
            waited_s = time.monotonic() - waits_since
        if read and stages and waited_s < _A_MOMENT_S and all(stage.started == stage.total for stage in stages):
            return "runs"
        time.sleep(0.05)
    raise AssertionError(f"nothing to be seen within {_PATIENCE_S:.0f} s: {query.status}")
