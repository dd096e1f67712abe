"""A user's own pipeline as a study: what it sends, how results are known, what it refuses."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.errors import OptionRefused, PipelineNotFound
from tailrace.measure import pipeline_study as module
from tailrace.measure.lanes.spark import SparkLane
from tailrace.measure.options import BenchOptions
from tailrace.measure.pipeline_study import generator, pipeline_study, replay
from tailrace.measure.traffic.probe import ByLineage
from tailrace.measure.traffic.records import Generated, as_settings, maker


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def pipeline_file(name: str, more: str = "", sources: str = 'tr.KafkaSource("in", "a int")') -> str:
    """A file of its own for each test: a module is loaded once."""
    Path(f"{name}.py").write_text(
        f'import tailrace as tr\npipeline = tr.Pipeline("fraud", [{sources}], lambda frame: frame, '
        f'tr.KafkaSink("out"){more})\n'
    )
    return f"{name}.py"


def test_both_modes_beside_the_floor_on_the_users_records() -> None:
    records = Generated("made.py", "make")
    study = pipeline_study(pipeline_file("bench_own_modes"), BenchOptions(trigger_every="200ms"), records)
    assert [cell.lane.name for cell in study.cells] == ["floor", "microbatch", "realtime"]
    assert [cell.title for cell in study.cells[1:]] == ["fraud, micro-batch, 200ms", "fraud, real time"]
    for cell in study.cells:
        assert cell.plan.flow.records == records
        assert cell.plan.flow.stamped, "a result is traced to its record, and the record must say its number"
        assert cell.plan.known_by == ByLineage()
    assert "cannot detect losses" in study.notes[0]
    assert study.settings["records"] == "generated"


def test_the_process_of_a_lane_finds_the_file_from_wherever_it_is(tmp_path: Path) -> None:
    study = pipeline_study(pipeline_file("bench_own_place"), BenchOptions(), Generated("made.py", "make"))
    for cell in study.cells[1:]:
        assert isinstance(cell.lane, SparkLane)
        assert cell.lane.runs.pipeline == str(tmp_path / "bench_own_place.py")
        assert cell.lane.runs.trigger == cell.lane.name


@pytest.mark.parametrize(
    ("name", "more", "sources", "what"),
    [
        ("bench_own_bare", ", lineage=False", 'tr.KafkaSource("in", "a int")', "has lineage=False"),
        ("bench_own_two", "", 'tr.KafkaSource("a", "a int"), tr.KafkaSource("b", "a int")', "has 2 sources"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_way_out(name: str, more: str, sources: str, what: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        pipeline_study(pipeline_file(name, more, sources), BenchOptions(), Generated("made.py", "make"))
    assert what in refused.value.what
    assert refused.value.fix.startswith("measure ")


def test_a_generator_is_a_function_in_a_file(tmp_path: Path) -> None:
    Path("made.py").write_text("def make(number):\n    return {'n': number}\n")
    assert generator("made.py:make") == Generated(str(tmp_path / "made.py"), "make")
    with pytest.raises(PipelineNotFound) as refused:
        generator("made.py")
    assert refused.value.fix == "name it as FILE:FUNCTION"
    with pytest.raises(PipelineNotFound, match="has no function absent"):
        generator("made.py:absent")


def test_records_of_a_topic_are_kept_to_be_sent_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = [SimpleNamespace(key=None, value=b"a"), SimpleNamespace(key=b"k", value=None)]
    records += [SimpleNamespace(key=b"k", value=b"%d" % number) for number in range(5)]
    monkeypatch.setattr(module, "read_records", lambda _client, _topic: iter(records))
    kept: Any = replay("b:1", "old", 4, tmp_path / "new")
    make = maker(as_settings(kept))
    assert [make(number, 0) for number in range(4)] == [(None, b"a"), (b"k", b"0"), (b"k", b"1"), (None, b"a")]
    with pytest.raises(OptionRefused, match="no records to replay"):
        replay("b:1", "old", 0, tmp_path / "new")
