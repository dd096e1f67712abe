from itertools import pairwise

from tailrace.report.lines import groups_of
from tailrace.report.result import Result

from .results import bench_result, engines_result, gap_result, sweep_result


def test_lanes_are_grouped_by_work_and_rate() -> None:
    groups = groups_of(Result.from_json(engines_result()))
    assert [group.title for group in groups][:4] == [
        "stateless, 200/s", "stateless, 2,000/s", "stateless, 8,000/s", "keyed aggregate, 200/s",
    ]  # fmt: skip
    assert [len(group.lines) for group in groups] == [6, 6, 6, 6, 6, 6, 7, 7, 7]


def test_a_lane_looks_the_same_in_every_group() -> None:
    looks: dict[str, set[int]] = {}
    for group in groups_of(Result.from_json(engines_result())):
        for line in group.lines:
            looks.setdefault(line.lane.lane, set()).add(line.style)
    assert all(len(styles) == 1 for styles in looks.values())
    assert len({next(iter(styles)) for styles in looks.values()}) == len(looks)


def test_dash_patterns_alone_distinguish_lanes() -> None:
    for group in groups_of(Result.from_json(engines_result())):
        assert len({line.dash for line in group.lines}) == len(group.lines)


def test_repeated_lanes_have_different_labels_and_styles() -> None:
    (group,) = groups_of(Result.from_json(sweep_result()))
    assert len({line.label for line in group.lines}) == len(group.lines)
    assert len({line.style for line in group.lines}) == len(group.lines)


def test_the_same_label_in_another_group_has_the_same_style() -> None:
    stateless, aggregate = groups_of(Result.from_json(gap_result()))
    assert [line.style for line in stateless.lines] == [line.style for line in aggregate.lines]


def test_the_typical_run_has_the_median_p50() -> None:
    for line in groups_of(Result.from_json(bench_result()))[0].lines:
        assert line.typical is not None
        assert line.typical.result.p50_ms == line.lane.p50_ms


def test_a_lane_without_a_p50_has_no_typical_run() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["result"]["p50_ms"] = None
    assert [line.typical for line in groups_of(Result.from_json(result))[0].lines] == [None] * 3


def test_a_result_without_lanes_has_no_groups() -> None:
    assert groups_of(Result.from_json({})) == ()
    assert groups_of(Result.from_json({"lanes": {}, "runs": []})) == ()


def test_generated_runs_differ() -> None:
    medians = [run["result"]["p50_ms"] for run in bench_result()["runs"] if run["key"] == "realtime"]
    assert all(one != other for one, other in pairwise(medians))
