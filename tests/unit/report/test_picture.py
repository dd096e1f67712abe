import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tailrace.report.picture import BOTTOM, LEAST_BETWEEN, RIGHT, TOP, in_words, percentile_svg
from tailrace.report.result import Result

from .results import bench_result

KEYS = ("floor", "microbatch", "realtime")
SVG = "{http://www.w3.org/2000/svg}"


def drawn(result: dict[str, Any], keys: tuple[str, ...] = KEYS) -> ET.Element:
    return ET.fromstring(percentile_svg(Result.from_json(result), keys))


def texts(picture: ET.Element) -> list[str]:
    return [str(each.text) for each in picture.iter(f"{SVG}text")]


def paths(picture: ET.Element, kind: str) -> dict[str, list[tuple[float, float]]]:
    """The points of each path of a class, by its second class."""
    points = {}
    for each in picture.iter(f"{SVG}path"):
        first, *rest = each.attrib["class"].split()
        if first == kind and rest:
            numbers = [float(number) for number in re.findall(r"[\d.]+", each.attrib["d"])]
            points[rest[0]] = list(zip(numbers[::2], numbers[1::2], strict=True))
    return points


def flat(result: dict[str, Any], levels: dict[str, float]) -> dict[str, Any]:
    """The result with lines that are level, so that a test knows where they are."""
    for run in result["runs"]:
        run["percentiles"] = [[50.0, levels[run["key"]]], [99.9, levels[run["key"]]]]
    return result


def test_each_lane_has_its_own_colour_and_pattern() -> None:
    picture = drawn(bench_result())
    assert set(paths(picture, "line")) == {"lane-0", "lane-1", "lane-2"}
    dashes = [each.get("stroke-dasharray") for each in picture.iter(f"{SVG}path") if "line" in each.attrib["class"]]
    assert len(set(dashes)) == 3
    assert {"Kafka alone", "micro-batch, every 500 ms", "real time"} <= set(texts(picture))


def test_only_named_lanes_are_drawn() -> None:
    picture = drawn(bench_result(), ("realtime",))
    assert set(paths(picture, "line")) == {"lane-0"}
    assert "Kafka alone" not in texts(picture)


def test_a_line_is_the_run_with_the_median_p50() -> None:
    result = bench_result()
    runs = [run for run in result["runs"] if run["key"] == "realtime"]
    runs.sort(key=lambda run: float(run["result"]["p50_ms"]))
    for run, level in zip(runs, (1.0, 10.0, 100.0), strict=True):
        run["percentiles"] = [[50.0, level], [99.0, level]]
    line = paths(drawn(result, ("realtime",)), "line")["lane-0"]
    assert {y for _, y in line} == {float(BOTTOM)}, "the decade from 10 ms on, at its foot"


def test_the_axes_have_steps_by_decade_and_by_nine() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["percentiles"] = [[0.0, 0.05], [50.0, 0.1], [90.0, 1.0], [99.0, 10.0], [99.9, 100.0], [100.0, 900.0]]
    line = paths(drawn(result, ("realtime",)), "line")["lane-0"]
    assert len(line) == 4, "what is below the median or at 100 has no place"
    third = (BOTTOM - TOP) / 3
    assert [y for _, y in line] == pytest.approx([BOTTOM, BOTTOM - third, TOP + third, TOP], abs=0.1)
    nine, another = line[2][0] - line[1][0], line[3][0] - line[2][0]
    assert nine == pytest.approx(another, abs=0.2)
    assert line[-1][0] == RIGHT


def test_the_axes_have_titles() -> None:
    result = flat(bench_result(), {"floor": 0.3, "microbatch": 400.0, "realtime": 0.7})
    shown = texts(drawn(result))
    assert [text for text in shown if re.fullmatch(r"[\d.,]+ m?s", text)] == [
        "0.1 ms", "1 ms", "10 ms", "100 ms", "1 s",
    ]  # fmt: skip
    assert [text for text in shown if re.fullmatch(r"p[\d.]+", text)] == ["p50", "p90", "p99", "p99.9"]


def test_a_single_level_still_has_an_axis() -> None:
    result = flat(bench_result(), dict.fromkeys(KEYS, 10.0))
    assert {"10 ms", "100 ms"} <= set(texts(drawn(result)))


@pytest.mark.parametrize("level", [0.1, 31.0, 999.0])
def test_labels_do_not_overlap(level: float) -> None:
    result = flat(bench_result(), {"floor": level, "microbatch": level * 1.01, "realtime": level})
    picture = drawn(result)
    places = sorted(float(each.attrib["y"]) for each in picture.iter(f"{SVG}text") if "name" in each.attrib["class"])
    assert all(after - before > LEAST_BETWEEN - 0.2 for before, after in pairwise(places))
    assert places[0] >= TOP
    assert places[-1] + 16 <= BOTTOM + 8


def test_the_picture_has_a_description() -> None:
    picture = drawn(bench_result())
    assert picture.attrib["role"] == "img"
    named = picture.attrib["aria-labelledby"].split()
    said = {str(each.get("id")): str(each.text) for each in picture if each.get("id")}
    assert [said[name] for name in named] == ["Latency by percentile", in_words(Result.from_json(bench_result()), KEYS)]
    assert "real time: p50 0.71 ms, p99 " in said["desc"]


def test_the_picture_has_dark_colours_and_loads_nothing() -> None:
    text = percentile_svg(Result.from_json(bench_result()), KEYS)
    light, dark = text.split("@media (prefers-color-scheme:dark)")
    for kind in (".ground{fill:", ".lane-0{stroke:", ".name-0{fill:", ".rule{stroke:", "text{fill:"):
        colours = [re.search(re.escape(kind) + r"(#\w{6})", part) for part in (light, dark)]
        assert all(colours), kind
        assert len({match.group(1) for match in colours if match}) == 2, kind
    assert not re.search(r"href|url\(|@import|<script|var\(", text)


def test_titles_are_escaped() -> None:
    result = bench_result()
    result["lanes"]["realtime"]["title"] = 'a < b & "c"</text><script>'
    assert 'a < b & "c"</text><script>' in texts(drawn(result))


@pytest.mark.parametrize("keys", [("storm",), ("floor", "storm"), ()])
def test_a_missing_lane_is_an_error(keys: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no percentiles of"):
        percentile_svg(Result.from_json(bench_result()), keys)


def test_a_lane_without_percentiles_is_an_error() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["percentiles"] = []
    with pytest.raises(ValueError, match="no percentiles of floor, microbatch, realtime"):
        percentile_svg(Result.from_json(result), KEYS)
