"""The page as text. How it looks and what its scripts do is tested in a browser, in tests/e2e."""

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tailrace.report import read_result, render_report, write_report
from tailrace.report.figures import NOTHING, TO
from tailrace.report.page import embedded
from tailrace.report.result import Result

from .results import STUDIES, bench_result, engines_result, gap_result, rates_result, sweep_result, void_result

COMMON = ["lanes", "percentiles", "time", "spans", "delay", "resources", "runs", "notes", "settings", "origin"]
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Page(HTMLParser):
    """What a browser would make of the page, as far as the tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.texts.append(data)
        elif self._inside[-1] == "script":
            self.scripts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def sections(self) -> list[str]:
        return [str(attributes["id"]) for tag, attributes in self.tags if tag == "section"]


@pytest.mark.parametrize("make", STUDIES.values(), ids=STUDIES)
def test_every_study_has_a_complete_page(make: Callable[[], dict[str, Any]]) -> None:
    page = Page(render_report(Result.from_json(make())))
    assert [name for name in COMMON if name not in page.sections] == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "two elements with one id"
    links = [str(attributes["href"]) for tag, attributes in page.tags if tag == "a"]
    assert [link for link in links if link.removeprefix("#") not in ids] == []
    charts = {attributes["id"] for _, attributes in page.tags if attributes.get("class") == "chart"}
    assert charts == set(json.loads(page.scripts[0]))


COMMITTED = sorted(Path(__file__).parents[3].glob("benchmarks/results/*/result.json"))


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.parent.name)
def test_every_committed_result_renders(file: Path) -> None:
    page = Page(render_report(read_result(file)))
    assert [name for name in COMMON if name not in page.sections] == []


@pytest.mark.parametrize("make", STUDIES.values(), ids=STUDIES)
def test_the_page_is_self_contained(make: Callable[[], dict[str, Any]]) -> None:
    text = render_report(Result.from_json(make()))
    assert not re.findall(r"https?:", text)
    assert not re.findall(r"url\(|@import", text)
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("link", "img", "iframe", "object", "embed", "base")]
    assert not [attributes for _, attributes in page.tags if "src" in attributes or "srcset" in attributes]
    assert "Permission is hereby granted" in text, "the licence of what others wrote"
    assert "HISTOGRAM" not in text, "raw histograms stay in result.json"


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (bench_result, {"ratios", "pauses", "unavailable"}),
        (sweep_result, {"sweep", "pauses"}),
        (rates_result, {"rates"}),
        (gap_result, {"gap"}),
        (engines_result, {"engines", "ratios", "unavailable"}),
    ],
)
def test_a_study_has_its_own_sections(make: Callable[[], dict[str, Any]], own: set[str]) -> None:
    assert set(Page(render_report(Result.from_json(make()))).sections) - set(COMMON) == own


def test_the_verdict_comes_first() -> None:
    valid, void = render_report(Result.from_json(bench_result())), render_report(Result.from_json(void_result()))
    assert "<title>Valid: Latency benchmark, profile full, 15 November 2026" in valid
    assert "<title>Void: Latency benchmark" in void
    assert valid.index("✓ Valid") < valid.index("<h1>")
    assert void.index("✗ Void") < void.index("<h1>")
    assert "real time, run 2: 120 records never arrived" in Page(void).text


def test_a_result_without_validity_is_void() -> None:
    assert "✗ Void" in render_report(Result.from_json({}))


def test_the_headline_has_its_spread() -> None:
    text = Page(render_report(Result.from_json(bench_result()))).text
    assert re.search(r"real time is \d+ times faster than micro-batch, every 500 ms\.", text)
    assert re.search(rf"Over 3 runs: \d+{TO}\d+ times", text)


def test_lost_and_repeated_records_are_highlighted() -> None:
    void = render_report(Result.from_json(void_result()))
    assert '<strong class="bad">120</strong>' in void
    assert '<strong class="bad">7</strong>' in void
    assert "p99 publish delay is 31 % of p99" in void
    assert 'class="bad"' not in render_report(Result.from_json(bench_result()))


def test_a_missing_percentile_is_a_dash_with_a_reason() -> None:
    reasons = re.findall(r'<span class="none" title="([^"]+)">', render_report(Result.from_json(void_result())))
    assert "too few samples above it" in reasons
    assert ">None<" not in render_report(Result.from_json(void_result()))
    assert ">nan<" not in render_report(Result.from_json(void_result()))


def test_a_lane_that_fell_behind_does_not_void_the_result() -> None:
    page = render_report(Result.from_json(engines_result()))
    assert "✓ Valid" in page
    assert "1 of 57 runs could not keep up with the load" in page
    assert '<strong class="bad">fell behind</strong>' in page
    assert '<strong class="bad">void</strong>' not in page


def test_a_valid_result_counts_its_void_runs() -> None:
    result = engines_result()
    late = next(run for run in result["runs"] if run["key"] == "flink stateless 8000")
    late |= {"valid": False, "problems": ["the load missed its plan: late"]}
    page = render_report(Result.from_json(result))
    assert "1 of 57 runs could not keep up with the load, 1 of 57 are void, with the reason at each" in page


def test_records_repeated_by_a_kill_are_not_highlighted() -> None:
    page = render_report(Result.from_json(gap_result()))
    assert 'class="bad"' not in page
    assert "No result came out for 6.2 s; 9,000 records came out twice." in Page(page).text
    assert '"text":"killed"' in page


def test_merged_records_have_a_column_only_if_there_are_any() -> None:
    assert "<td>1,200</td>" in render_report(Result.from_json(engines_result()))
    assert ">merged<" not in render_report(Result.from_json(bench_result()))


def test_declined_ratios_and_unavailable_lanes_are_listed() -> None:
    text = Page(render_report(Result.from_json(bench_result()))).text
    assert "populations differ, so no ratio" in text
    assert "Quix Streams, tuned : pip refused (no wheel for this Python)" in text


def test_settings_versions_machine_and_command_are_shown() -> None:
    text = Page(render_report(Result.from_json(bench_result()))).text
    for words in ("payload_bytes", "linger.ms", "message.timestamp.type", "pyspark", "Some CPU", "9f8828155d2c",
                  "tailrace bench --profile full", "spark.sql.streaming.stateStore.rocksdb.memtable"):  # fmt: skip
        assert words in text, words


def test_the_matrix_highlights_the_lowest_engine_but_not_the_floor() -> None:
    text = render_report(Result.from_json(engines_result()))
    matrix = text[text.index('<section id="engines"') : text.index('<section id="lanes"')]
    rows = {row.group(1): row.group(0) for row in re.finditer(r'<tr><th scope="row">.*?<span>([^<]+)</span>.*', matrix)}
    assert "<strong>" not in rows["Kafka alone"]
    assert sum(row.count("<strong>") for row in rows.values()) == 9
    assert rows["PyFlink, process mode"].count("not measured") == 2 * 6


def test_many_charts_over_time_are_folded() -> None:
    opened = "<details>\n<summary>"
    assert render_report(Result.from_json(engines_result())).count(opened) == 9
    assert opened not in render_report(Result.from_json(bench_result()))


@pytest.mark.parametrize("missing", [*bench_result(), "nothing"])
def test_an_incomplete_result_renders(missing: str) -> None:
    result = bench_result()
    result.pop(missing, None)
    assert "origin" in Page(render_report(Result.from_json(result))).sections


def test_sections_without_data_are_omitted() -> None:
    result = bench_result()
    for name in ("ratios", "declined", "unavailable", "runs", "notes", "settings", "clients"):
        del result[name]
    for lane in result["lanes"].values():
        lane["settings"] = {}
    assert Page(render_report(Result.from_json(result))).sections == ["lanes", "origin"]
    assert Page(render_report(Result.from_json({}))).sections == []


@pytest.mark.parametrize("missing", [*bench_result()["runs"][0]])
def test_an_incomplete_run_renders(missing: str) -> None:
    result = bench_result()
    for run in result["runs"]:
        del run[missing]
    assert "lanes" in Page(render_report(Result.from_json(result))).sections


@pytest.mark.parametrize("missing", [*bench_result()["lanes"]["floor"]])
def test_an_incomplete_lane_renders(missing: str) -> None:
    result = bench_result()
    for lane in result["lanes"].values():
        del lane[missing]
    assert "lanes" in Page(render_report(Result.from_json(result))).sections


def test_a_run_without_figures_renders() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["result"] = dict.fromkeys(run["result"])
        run |= {"spans_ms": None, "mean_ms": None, "timeline": None, "percentiles": None, "boundaries": None}
    for lane in result["lanes"].values():
        lane |= {name: None for name in lane if name.endswith("_ms")}
    page = Page(render_report(Result.from_json(result)))
    assert "percentiles" not in page.sections
    assert "time" not in page.sections
    assert NOTHING in page.text


def test_values_are_escaped() -> None:
    result = json.loads(json.dumps(bench_result()).replace("real time", json.dumps(NASTY)[1:-1]))
    result |= {"notes": [NASTY], "verdict": [NASTY], "command": NASTY, "declined": [NASTY], "tool": NASTY}
    result["settings"][NASTY] = NASTY
    result["lanes"][NASTY] = result["lanes"]["realtime"] | {"work": NASTY}
    result["unavailable"] = [{"lane": NASTY, "title": NASTY, "what": NASTY, "why": NASTY}]
    plain, nasty = Page(render_report(Result.from_json(bench_result()))), Page(render_report(Result.from_json(result)))
    assert [tag for tag, _ in nasty.tags if tag in ("script", "img")] == [
        tag for tag, _ in plain.tags if tag in ("script", "img")
    ]
    assert not [name for _, attributes in nasty.tags for name in attributes if name.startswith("on")]
    assert NASTY in nasty.text
    assert NASTY in json.loads(nasty.scripts[0])["chart-percentiles-0"]["series"][-1]["label"]


def test_embedded_json_round_trips() -> None:
    value = {"a": [NASTY, "\u2028", None, 1.5, True], "b": {}}
    text = embedded(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028") & set(text)
    assert json.loads(embedded([math.nan, math.inf, 1.0])) == [None, None, 1.0]


def test_the_policy_allows_only_the_pages_scripts() -> None:
    text = render_report(Result.from_json(bench_result()))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src &#39;none&#39;; ")
    assert policy.count("sha256-") == 3
    scripts = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts


def test_a_report_is_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(Result.from_json(bench_result()), path)
    assert path.read_text(encoding="utf-8") == render_report(Result.from_json(bench_result()))
    write_report(Result.from_json(void_result()), path)
    assert "✗ Void" in path.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_failed_report_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(AttributeError):
        write_report(Result.from_json({"lanes": [1]}), path)  # type: ignore[dict-item]
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
