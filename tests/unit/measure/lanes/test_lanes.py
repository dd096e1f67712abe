from pathlib import Path

import pytest

from tailrace.errors import OptionRefused
from tailrace.measure.lane import Cell, Lane
from tailrace.measure.lanes import Floor, all_lanes, lanes_named
from tailrace.measure.lanes.spark import SparkLane
from tailrace.measure.python_work import FUNCTIONS
from tailrace.measure.works import Work

LANES = all_lanes()
SPARK = {name: lane for name, lane in LANES.items() if isinstance(lane, SparkLane)}


@pytest.mark.parametrize("name", LANES)
def test_a_lane_has_a_name_a_title_and_a_work(name: str) -> None:
    lane = LANES[name]
    assert lane.name == name
    assert name == name.lower()
    assert " " not in name
    assert lane.title
    assert lane.works
    assert lane.works <= set(Work)
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in lane.settings.items())


def test_titles_are_unique() -> None:
    assert len({lane.title for lane in LANES.values()}) == len(LANES)


def test_every_work_has_a_lane_in_real_time_and_one_in_micro_batch() -> None:
    for work in Work:
        assert work in LANES["microbatch"].works
        assert any(work in lane.works for lane in SPARK.values() if lane.runs.trigger == "realtime"), work


def test_lanes_are_returned_once_in_the_given_order() -> None:
    assert [lane.name for lane in lanes_named(["realtime", "floor", "realtime"])] == ["realtime", "floor"]


def test_an_unknown_lane_is_refused_with_the_known_names() -> None:
    with pytest.raises(OptionRefused) as refused:
        lanes_named(["floor", "storm"])
    assert refused.value.what == "there is no lane 'storm'"
    assert "floor, microbatch" in refused.value.fix


def test_the_floor_has_no_engine(tmp_path: Path) -> None:
    floor: Lane = Floor()
    said: list[str] = []
    floor.prepare(said.append)
    assert floor.command(Cell(Work.STATELESS, "b:1", "in", "in", 2, tmp_path)) is None
    assert (said, floor.versions(), floor.settings, floor.merges) == ([], {}, {}, False)


@pytest.mark.parametrize("name", SPARK)
def test_a_spark_lane_reports_its_settings(name: str) -> None:
    lane = SPARK[name]
    assert {key: lane.settings.get(key) for key in lane.runs.conf} == dict(lane.runs.conf)


@pytest.mark.parametrize("name", SPARK)
def test_only_micro_batches_merge_updates(name: str) -> None:
    assert SPARK[name].merges == (SPARK[name].runs.trigger == "microbatch")


def test_stock_lanes_do_not_run_tailrace() -> None:
    ours = {name for name, lane in SPARK.items() if lane.runs.tailrace}
    kinds = {f"realtime-{kind}" for kind in FUNCTIONS}
    deliveries = {"realtime-at-least-once", "realtime-spark-sink"}
    assert ours == {"microbatch", "realtime", "realtime-timer", "realtime-shared"} | deliveries | kinds
