"""``tailrace bench FILE``: the user's own pipeline in both modes, on the user's records."""

import itertools
from dataclasses import replace
from pathlib import Path

from tailrace.errors import OptionRefused, PipelineNotFound
from tailrace.kafka.client import plain_client
from tailrace.kafka.records import read_records
from tailrace.measure.lane import Trigger
from tailrace.measure.lanes import Floor
from tailrace.measure.lanes.spark import SparkLane
from tailrace.measure.options import BenchOptions
from tailrace.measure.run import CellPlan
from tailrace.measure.spark_process import SparkSettings
from tailrace.measure.study import Study
from tailrace.measure.traffic.probe import ByLineage
from tailrace.measure.traffic.records import Generated, Records, load_function, save_for_replay
from tailrace.measure.works import Work
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.loader import load_pipeline

_NO_LOSSES = (
    "The lineage in the headers of a result names its record. A record that the pipeline drops has no result, so this "
    "benchmark cannot detect losses."
)
_TITLES = {Mode.MICROBATCH: "micro-batch", Mode.REALTIME: "real time"}


def pipeline_study(spec: str, options: BenchOptions, records: Records) -> Study:
    """Measure the pipeline in micro-batch and real time, with Kafka alone as the baseline."""
    pipeline = load_pipeline(spec)
    require_measurable(pipeline)
    lanes: dict[str, Floor | SparkLane] = {"floor": Floor()}
    for mode in (Mode.MICROBATCH, Mode.REALTIME):
        lanes[str(mode)] = SparkLane(
            str(mode),
            f"{pipeline.name}, {_TITLES[mode]}",
            frozenset({Work.STATELESS}),
            SparkSettings(tailrace=True, trigger=Trigger(str(mode)), pipeline=_absolute(spec)),
        )
    for name in options.lanes:
        if name not in lanes:
            raise OptionRefused(f"your pipeline has no lane {name!r}", fix=f"use one or more of: {', '.join(lanes)}")
    return Study(
        "pipeline",
        [_with_records(options.cell(lanes[name]), records) for name in options.lanes],
        options.runs,
        {**options.as_settings(), "pipeline": spec, "records": type(records).__name__.lower()},
        notes=[_NO_LOSSES],
    )


def require_measurable(pipeline: Pipeline) -> None:
    """Refuse a pipeline that this benchmark cannot measure.

    Raises:
        OptionRefused: It has several sources, or no lineage.
    """
    if len(pipeline.sources) > 1:
        raise OptionRefused(
            f"pipeline {pipeline.name!r} has {len(pipeline.sources)} sources",
            why="the benchmark sends records to one topic",
            fix="measure a pipeline with one source",
        )
    if not pipeline.lineage:
        raise OptionRefused(
            f"pipeline {pipeline.name!r} has lineage=False",
            why="the benchmark finds the record of a result by the headers that lineage writes",
            fix="measure it with lineage=True; what lineage costs is in docs/concepts/lineage.md",
        )


def generator(text: str) -> Generated:
    """Return the generator that ``FILE:FUNCTION`` names.

    Raises:
        PipelineNotFound: There is none.
    """
    file, _, function = text.rpartition(":")
    if not file:
        raise PipelineNotFound(f"{text!r} names no generator", fix="name it as FILE:FUNCTION")
    load_function(file, function)
    return Generated(str(Path(file).absolute()), function)


def replay(servers: str, topic: str, limit: int, folder: Path) -> Records:
    """Save the first records of a topic for replay.

    Raises:
        OptionRefused: There is none.
    """
    found = [
        (record.key, record.value)
        for record in itertools.islice(read_records(plain_client(servers), topic), limit)
        if record.value is not None
    ]
    if not found:
        raise OptionRefused(f"topic {topic!r} has no records to replay", fix="name another topic, or --generator")
    folder.mkdir(parents=True, exist_ok=True)
    return save_for_replay(found, folder / "replay.npz")


def _with_records(cell: CellPlan, records: Records) -> CellPlan:
    flow = replace(cell.plan.flow, records=records, stamped=True)
    return replace(cell, plan=replace(cell.plan, flow=flow, known_by=ByLineage()))


def _absolute(spec: str) -> str:
    file, colon, name = spec.partition(":")
    return f"{Path(file).absolute()}{colon}{name}" if file.endswith(".py") else spec
