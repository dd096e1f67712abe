"""What the check says of a query is what Spark then does with it, for every query of the corpus."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import tailrace as tr
from tailrace import engine
from tailrace.preflight.checks import slots_missing

from .conftest import Kafka
from .corpus import Case, Sources, cases

CASES = list(cases())
_PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def sources(spark: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    kafka = Kafka(broker.bootstrap_servers)
    slots = engine.capacity(spark).slots
    topics = [kafka.topic("corpus", 2), kafka.topic("corpus-other", 1), kafka.topic("corpus-wide", slots + 4)]
    for topic in topics:
        kafka.send(topic, [event(number) for number in range(60)])
    return Sources(spark, broker.bootstrap_servers, *topics, str(tmp_path_factory.mktemp("corpus")))


def event(number: int) -> dict[str, Any]:
    return {
        "id": number, "key": "abc"[number % 3], "amount": number % 10, "tags": ["x", "y"],
        "time": f"2026-11-15T10:00:{number % 60:02d}Z",
    }  # fmt: skip


def test_the_corpus_is_large_and_has_every_verdict() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.verdict for case in CASES} == {"runs", "refused", "starves"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_check_says_what_spark_does(case: Case, sources: Sources, kafka: Kafka, tmp_path: Path) -> None:
    writer = writer_of(case, sources, kafka, tmp_path)
    report = tr.check(writer, checkpoint_every="1s", conf={"spark.sql.shuffle.partitions": "2"})
    said = "runs" if report.ok else "refused"
    if slots_missing.CODE in {finding.code for finding in report.findings}:
        said = "starves"
    assert (said, done_by_spark(writer)) == (case.verdict, case.verdict), report.as_json()
    for finding in report.findings:
        assert finding.title
        assert finding.why
        assert finding.fix


def writer_of(case: Case, sources: Sources, kafka: Kafka, folder: Path) -> Any:
    made = case.build(sources)
    if isinstance(made, DataFrame):
        rows = made if made.columns == ["value"] else made.selectExpr("to_json(struct(*)) as value")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", sources.servers)
        made = writer.option("topic", kafka.topic("corpus-out", 1))
    return made.outputMode(case.output_mode).option("checkpointLocation", str(folder / "checkpoint"))


def done_by_spark(writer: Any) -> str:
    """Start it on stock settings, as far as real time has any, and see."""
    own = engine.clone_session(engine.writer_frame(writer).sparkSession)
    own.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        query = engine.writer_on(writer, own).trigger(realTime="1 seconds").start()
    except PySparkException:
        return "refused"
    try:
        return seen(query)
    finally:
        query.stop()


def seen(query: Any) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if query.exception() is not None:
            return "refused"
        stages = engine.running_stages(query)
        if any(stage.waiting for stage in stages) and query.lastProgress is not None:
            return "starves"
        if query.lastProgress is not None and query.lastProgress["numInputRows"] > 0:
            return "runs"
        time.sleep(0.05)
    raise AssertionError(f"nothing to be seen within {_PATIENCE_S:.0f} s: {query.status}")
