"""Run a pipeline on rows."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import OptionRefused
from tailrace.frames.source import kafka_frame
from tailrace.pipeline import KafkaSink, Mode, Pipeline
from tailrace.prepare.batch import run_batch
from tailrace.prepare.options import RunOptions
from tailrace.running.start import start_query
from tailrace.testing.bench import SINK_PARTITIONS, SOURCE_PARTITIONS, Bench, shared_bench, without_security
from tailrace.testing.output import Output
from tailrace.testing.rows import MODES, Record, Row, steps

_PATIENCE = {"kafka.max.block.ms": "5000"}
"""A row for a missing topic is an error after 5 s instead of a minute."""


def run(
    pipeline: Pipeline,
    rows: Sequence[Row],
    mode: str = "realtime",
    *,
    topics: Sequence[str] = (),
    timeout_s: float = 120.0,
) -> Output:
    """Run a pipeline on rows until all of them are processed, and return what it wrote.

    Args:
        pipeline: The pipeline, unchanged. Its topics are created on a private broker.
        rows: Dictionaries for JSON; unchanged text and bytes, so that a test can send malformed records; a
            :class:`Record` for a key, headers, a topic or a timestamp; :data:`CHECKPOINT` between two of them.
        mode: ``"batch"``, ``"microbatch"`` or ``"realtime"``.
        topics: More topics to create, if the pipeline routes by a column.
        timeout_s: How long it may take.

    Raises:
        TailraceError: The pipeline cannot run, or it failed.
    """
    if mode not in MODES:
        raise OptionRefused(f"invalid mode {mode!r}", fix=f"use one of {', '.join(MODES)}")
    bench = shared_bench()
    parts = steps(pipeline, rows)
    _make_topics(bench, pipeline, parts, topics)
    here = bench.from_here(replace(pipeline, sink=_impatient(pipeline)))
    outputs = [*([pipeline.sink.topic] if pipeline.sink.topic else []), *topics]
    dead = [pipeline.dead_letter_topic] if pipeline.dead_letter_topic else []
    before = bench.ends([*outputs, *dead])
    if mode == "batch":
        malformed = _run_batch(bench, here, parts)
    else:
        malformed = _run_stream(bench, here, parts, Mode(mode), timeout_s)
    after = bench.ends([*outputs, *dead])
    return Output(
        [record for topic in outputs for record in bench.read(topic, before[topic], after[topic])],
        [record for topic in dead for record in bench.read(topic, before[topic], after[topic])],
        malformed,
    )


def require_equal_modes(
    pipeline: Pipeline, rows: Sequence[Row], *, by: Sequence[str] = (), topics: Sequence[str] = ()
) -> Output:
    """Run a pipeline in every mode, require equal results, and return those of the batch.

    Args:
        pipeline: The pipeline.
        rows: As for :func:`run`.
        by: For a pipeline with state: the columns that name a result, of which the last row counts. Without them,
            the same rows must come out the same number of times, in any order.
        topics: As for :func:`run`.

    Raises:
        AssertionError: A mode gives other results than the batch.
    """
    expected = run(pipeline, rows, "batch", topics=topics)
    for mode in ("microbatch", "realtime"):
        actual = run(pipeline, rows, mode, topics=topics)
        wanted, got = _comparable(expected, by), _comparable(actual, by)
        if expected.malformed != actual.malformed:
            raise AssertionError(f"{mode} has {actual.malformed} malformed records, batch {expected.malformed}")
        if wanted != got:
            missing, extra = wanted - got, got - wanted
            raise AssertionError(
                f"{mode} differs from batch: {sum(missing.values())} results missing, {sum(extra.values())} too many; "
                f"missing {list(missing)[:3]}, too many {list(extra)[:3]}"
            )
    return expected


def _comparable(output: Output, by: Sequence[str]) -> Counter[str]:
    """Return the results as countable text; the topic is part of each."""
    if by:
        return Counter(json.dumps(row, sort_keys=True) for row in output.last(*by).values())
    return Counter(json.dumps([record.topic, record.row], sort_keys=True) for record in output.records)


def _make_topics(bench: Bench, pipeline: Pipeline, parts: Sequence[Sequence[Record]], more: Sequence[str]) -> None:
    named = {name for source in pipeline.sources for name in source.topic_names}
    used = {record.topic for part in parts for record in part if record.topic is not None}
    bench.make_topics(sorted(named | used), SOURCE_PARTITIONS)
    sinks = {pipeline.sink.topic, pipeline.dead_letter_topic, *more} - {None}
    bench.make_topics(sorted(str(name) for name in sinks), SINK_PARTITIONS)


def _impatient(pipeline: Pipeline) -> KafkaSink:
    return replace(pipeline.sink, options=_PATIENCE | without_security(pipeline.sink.options))


def _run_batch(bench: Bench, pipeline: Pipeline, parts: Sequence[Sequence[Record]]) -> dict[str, int]:
    for part in parts:
        bench.send(part)
    bounds = [
        {
            **source.starting_options,
            "endingOffsets": json.dumps(bench.offsets(source)),
        }
        for source in pipeline.sources
    ]
    servers = bench.broker.bootstrap_servers

    def read(spark: SparkSession) -> list[DataFrame]:
        pairs = zip(pipeline.sources, bounds, strict=True)
        return [kafka_frame(pipeline, source, spark, servers, each) for source, each in pairs]

    return run_batch(pipeline, bench.spark, servers, read)


def _run_stream(
    bench: Bench, pipeline: Pipeline, parts: Sequence[Sequence[Record]], mode: Mode, timeout_s: float
) -> dict[str, int]:
    _ = bench.spark  # with slots for any test; left to itself, a run would start one that just fits
    folder = bench.folder()
    malformed: Counter[str] = Counter()
    for part in parts:
        bench.send(part)
        options = RunOptions(mode, bootstrap_servers=bench.broker.bootstrap_servers, checkpoint=folder, once=True)
        with start_query(pipeline, options, private=True) as running:
            if not running.wait(timeout_s):
                raise TimeoutError(f"pipeline {pipeline.name!r} did not process all rows within {timeout_s:g} s")
            summary = running.stop()
        malformed.update(summary.malformed)
    return dict(malformed)
