"""What `tailrace bench` says and ends with, with nothing measured. Real benchmarks: tests/e2e."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.app import _run
from tailrace.demo.feature_costs import LineageCost, LineageOptions, StaticTableCosts, TableCost
from tailrace.measure.options import STUDIES
from tailrace.measure.run import Bench, CellPlan
from tailrace.measure.study import Study, assemble
from tailrace.report import render_report
from tailrace.report.result import LaneResult, Result, Run

from ..measure.fakes import run_line
from ..report.results import bench_result

LINEAGE_COST = LineageCost(LineageOptions(), {"on": [LaneResult(p50_ms=3.0)], "off": [LaneResult(p50_ms=2.5)]})
Capture = pytest.CaptureFixture[str]
P50 = {"floor": 0.3, "microbatch": 250.0, "realtime": 1.0}


class FakeBench:
    """A benchmark that takes no time."""

    def __init__(self) -> None:
        self.study: Study | None = None
        self.servers: str | None = None
        self.partitions = 0
        self.out = Path()
        self.spoilt = ""

    @contextmanager
    def place(self, servers: str | None, partitions: int, announce: Any) -> Iterator[Bench]:
        announce("Starting a temporary Kafka broker ...")
        self.servers, self.partitions = servers, partitions
        yield Bench(servers or "b:1", {}, partitions, Path("scratch"))

    def _line(self, cell: CellPlan, number: int) -> Run:
        line = run_line(cell, P50.get(cell.lane.name, 1.0), run=number, order=number)
        return replace(line, valid=False, problems=("it lied",)) if cell.lane.name == self.spoilt else line

    def run(self, study: Study, _bench: Bench, _screen: Any, out: Path) -> Result:
        self.study, self.out = study, out
        runs = [self._line(cell, number) for cell in study.cells for number in range(1, study.runs + 1)]
        return study.add(assemble(study, study.cells, runs, []))

    @property
    def cells(self) -> list[CellPlan]:
        assert self.study is not None
        return list(self.study.cells)

    @property
    def settings(self) -> Any:
        assert self.study is not None
        return self.study.settings


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    bench = FakeBench()
    monkeypatch.setattr("tailrace.measure.run.open_bench", bench.place)
    monkeypatch.setattr("tailrace.measure.study.run_study", bench.run)
    monkeypatch.setattr("tailrace.report.write_report", lambda _result, _file: None)
    return bench


def refused(capsys: Capture, *arguments: str) -> list[str]:
    assert _run(["bench", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return [line.strip() for line in shown.err.splitlines()]


def test_lanes_are_listed_on_standard_output(capsys: Capture) -> None:
    assert _run(["bench", "--list-lanes"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    listed = {line.split()[0]: line for line in shown.out.splitlines()}
    assert {"floor", "microbatch", "realtime", "continuous"} <= listed.keys()
    assert listed["continuous"].endswith("stateless")


def test_a_benchmark_prints_table_ratios_and_files(capsys: Capture, fake: FakeBench) -> None:
    assert _run(["bench", "--out", "here", "--runs", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    _, batch, fast = fake.cells
    assert [cell.key for cell in fake.cells] == ["floor", "microbatch", "realtime"]
    assert fake.out == Path("here")
    for words in (
        "Starting a temporary Kafka broker ...",
        "p99.9",
        f"p50    {batch.title}: 250.0 times {fast.title} (250.0 to 250.0 over 2 runs)",
        "report  here/report.html",
        "data    here/result.json",
    ):
        assert words in shown.err
    assert "void" not in shown.err


def test_the_default_folder_is_named_after_the_time(fake: FakeBench) -> None:
    assert _run(["bench"]) == 0
    assert fake.out.parent == Path("tailrace-bench")
    assert fake.out.name.startswith("bench-20")


def test_json_is_the_only_standard_output(capsys: Capture, fake: FakeBench) -> None:
    assert _run(["bench", "--json"]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert shown.out.count("\n") == 1
    assert list(result["lanes"]) == ["floor", "microbatch", "realtime"]
    assert "broker" in shown.err


def test_a_void_run_exits_with_1_and_prints_reasons_and_figures(capsys: Capture, fake: FakeBench) -> None:
    fake.spoilt = "realtime"
    assert _run(["bench", "--json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["valid"] is False
    assert "void: realtime, run 1: it lied" in shown.err
    assert _run(["bench"]) == 1
    shown = capsys.readouterr()
    assert "no ratio: " in shown.err
    assert "report  " in shown.err


def test_options_reach_the_study(fake: FakeBench) -> None:
    chosen = (
        "--profile quick --rate 50 --seconds 5 --warmup 1 --payload 200 --partitions 3 --checkpoint-every 10s "
        "--trigger-every 1s --runs 2 --shape poisson --work join --lanes realtime,floor --burst 0 "
        "--bootstrap-servers kafka:1"
    )
    assert _run(["bench", *chosen.split()]) == 0
    assert fake.settings == {
        "rate_per_s": 50, "seconds": 5, "warmup_s": 1, "payload_bytes": 200, "partitions": 3, "checkpoint_every": "10s",
        "trigger_every": "1s", "runs": 2, "shape": "poisson", "work": "join", "lanes": ("realtime", "floor"),
        "burst": 0, "boundaries": 0,
    }  # fmt: skip
    assert (fake.servers, fake.partitions) == ("kafka:1", 3)


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["--lanes", "floor,storm"], "there is no lane 'storm'", "use one or more of: floor"),
        (["--profile", "slow"], "there is no profile 'slow'", "use one of: quick, article, full"),
        (["--payload", "20"], "--payload 20 is too small", "use --payload "),
        (["--work", "sort"], "invalid --work sort", "use one of: stateless"),
        (
            ["--work", "join", "--lanes", "continuous"],
            "lane continuous does not support the work join",
            "use --work with one of: stateless",
        ),
        (
            ["sweep", "--intervals", "fast,slow"],
            "--intervals fast,slow is not a list of numbers",
            "use whole numbers: --intervals",
        ),
        (
            ["sweep", "--intervals", "5,-1"],
            "--intervals 5,-1 is not a list of numbers",
            "use whole numbers: --intervals",
        ),
        (["gap", "--intervals", ""], "--intervals  is not a list of numbers", "use whole numbers: --intervals"),
        (["rates", "--ladder", "10,x"], "--ladder 10,x is not a list of numbers", "use whole numbers: --ladder"),
        (["rates", "--ladder", "0,10"], "--ladder 0,10 is not a list of numbers", "use whole numbers: --ladder"),
        (["engines", "--works", "sort"], "invalid --works sort", "use one or more of: stateless"),
        (["engines", "--rates", "many"], "--rates many is not a list of numbers", "use whole numbers: --rates"),
        (["study", "storm"], "there is no study 'storm'", "use one of: article, full"),
        (["study"], "no study given", "run tailrace bench study NAME"),
        (["--rate", "5", "study", "gap"], "--rate must come after the study's name", "put --rate after gap"),
    ],
)
def test_invalid_options_exit_with_2_before_the_broker_starts(
    capsys: Capture, fake: FakeBench, arguments: list[str], what: str, fix: str
) -> None:
    lines = refused(capsys, *arguments)
    assert lines[0] == f"error: {what} [OPTION_REFUSED]"
    assert lines[-1].startswith(f"fix: {fix}")
    assert fake.study is None


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--rate", "fast"], ["--runs", "0"], ["--unknown"]])
def test_wrong_usage_exits_with_2(capsys: Capture, fake: FakeBench, arguments: list[str]) -> None:
    assert "Usage:" in "\n".join(refused(capsys, *arguments))
    assert fake.study is None


@pytest.mark.parametrize("name", ["sweep", "engines", "rates", "gap"])
def test_each_study_runs_by_its_name(capsys: Capture, fake: FakeBench, name: str) -> None:
    assert _run(["bench", name, "--json"]) == 0
    assert fake.study is not None
    assert fake.study.name == name
    assert fake.out.name.startswith(f"{name}-")
    assert json.loads(capsys.readouterr().out)["study"] == name


def test_options_before_a_study_reach_it_and_its_own_win(fake: FakeBench) -> None:
    assert _run(["bench", "--payload", "300", "--seconds", "7", "--rate", "5", "sweep", "--rate", "6"]) == 0
    assert fake.settings["payload_bytes"] == 300
    assert fake.settings["rate_per_s"] == 6
    assert fake.settings["seconds"] == 7, "a default of the study does not come before what the user chose"
    assert fake.settings["warmup_s"] == 15


@pytest.mark.parametrize("option", [["--out", "x"], ["--json"], ["--bootstrap-servers", "b:1"], ["--profile", "full"]])
def test_an_option_that_a_study_ignores_is_refused(capsys: Capture, fake: FakeBench, option: list[str]) -> None:
    assert refused(capsys, *option, "sweep")[0].startswith(
        f"error: {option[0]} must come after the study's or pipeline's name"
    )
    assert fake.study is None


def test_sweep_takes_intervals(fake: FakeBench) -> None:
    assert _run(["bench", "sweep", "--intervals", "0,100"]) == 0
    assert fake.settings["intervals_ms"] == [0, 100]


def test_engines_takes_lanes_works_and_rates(fake: FakeBench) -> None:
    arguments = ["--lanes", "floor,realtime", "--works", "stateless, join", "--rates", "5,7"]
    assert _run(["bench", "engines", *arguments]) == 0
    assert [cell.key for cell in fake.cells] == [
        "floor stateless 5", "floor stateless 7", "realtime stateless 5", "realtime stateless 7",
        "realtime join 5", "realtime join 7",
    ]  # fmt: skip


def test_rates_prints_the_highest_sustained_rate(capsys: Capture, fake: FakeBench) -> None:
    assert _run(["bench", "rates", "--ladder", "10,1000", "--lanes", "realtime"]) == 0
    assert "realtime: sustains 1,000/s with p99 below 100 ms" in capsys.readouterr().err
    fake.spoilt = "realtime"
    _run(["bench", "rates", "--ladder", "10,1000", "--lanes", "realtime"])
    assert "realtime: sustains none of these rates" in capsys.readouterr().err


def test_each_work_and_rate_has_its_own_table(capsys: Capture, fake: FakeBench) -> None:
    assert _run(["bench", "engines", "--lanes", "realtime,flink", "--works", "stateless", "--rates", "5,7"]) == 0
    shown = capsys.readouterr().err
    first, second = shown.split("stateless, 5/s")[1].split("stateless, 7/s")
    for table in (first, second):
        assert "Flink, its defaults: " in table
        assert table.count("From intended send to receipt") == 1


def test_named_studies_are_listed_on_standard_output(capsys: Capture) -> None:
    assert _run(["bench", "study", "--list"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [line.split()[0] for line in shown.out.splitlines()] == list(STUDIES)


SCRIPTS = {"lineage", "static-table"}


@pytest.mark.parametrize("name", [name for name in STUDIES if name not in SCRIPTS])
def test_each_named_study_is_a_benchmark_that_can_be_run(fake: FakeBench, name: str) -> None:
    assert _run(["bench", "study", name, "--out", "here"]) == 0
    assert fake.cells
    assert fake.out == Path("here")


def test_a_named_study_expands_to_its_arguments(fake: FakeBench) -> None:
    assert _run(["bench", "study", "engines-warm"]) == 0
    assert fake.out.name.startswith("engines-warm-20")
    assert fake.study is not None
    assert (fake.study.name, fake.study.runs) == ("engines", 3)
    assert fake.settings["works"] == ["aggregate"]
    assert (fake.settings["burst"], fake.settings["warmup_s"], fake.settings["seconds"]) == (60_000, 40, 15)
    assert [cell.key for cell in fake.cells] == [
        f"{lane} aggregate 2000"
        for lane in ("realtime", "realtime-timer", "quix", "flink-tuned", "kafka-streams-tuned", "quix-tuned")
    ]


def test_options_after_a_named_study_override_its_own(capsys: Capture, fake: FakeBench) -> None:
    assert _run(["bench", "study", "python", "--runs", "1", "--rates", "50", "--json"]) == 0
    assert fake.settings["runs"] == 1
    assert {cell.plan.flow.rate_per_s for cell in fake.cells} == {50.0}
    assert json.loads(capsys.readouterr().out)["study"] == "engines"


def test_a_void_named_study_exits_with_1(fake: FakeBench) -> None:
    fake.spoilt = "realtime"
    assert _run(["bench", "study", "article"]) == 1


@pytest.mark.parametrize(
    ("name", "function", "cost"),
    [
        ("lineage", "measure_lineage", LINEAGE_COST),
        ("static-table", "measure_static_tables", StaticTableCosts({0: TableCost(2.0, [1.0, 2.0, 3.0])})),
    ],
)
def test_a_study_without_lanes_writes_its_own_file(
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    function: str,
    cost: LineageCost | StaticTableCosts,
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(f"tailrace.demo.feature_costs.{function}", lambda *arguments: given.append(arguments) or cost)
    assert _run(["bench", "study", name, "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / f"{name}.json").read_text()) == cost.as_json()
    assert f"data    {tmp_path / f'{name}.json'}" in capsys.readouterr().err
    if name == "static-table":
        assert given[0][:2] == ([0, 1_000, 100_000, 1_000_000], 5)
    else:
        assert given[0][0] == LineageOptions(rounds=4, seconds=20, warmup=10, rate=2000)


def test_a_report_is_rendered_from_the_result(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(bench_result()))
    assert _run(["bench", "report", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"report  {tmp_path / 'report.html'}\n")
    assert (tmp_path / "report.html").read_text() == render_report(Result.from_json(bench_result()))


@pytest.mark.parametrize(
    ("text", "what"),
    [(None, "cannot be read"), ("{", "is not valid JSON"), ("[1]", "is not the result of a benchmark")],
)
def test_a_report_of_another_file_exits_with_2(capsys: Capture, tmp_path: Path, text: str | None, what: str) -> None:
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    lines = refused(capsys, "report", str(tmp_path))
    assert lines[0] == f"error: {tmp_path / 'result.json'} {what} [OPTION_REFUSED]"
    assert lines[-1] == "fix: name a folder that `tailrace bench --out` wrote"
    assert not (tmp_path / "report.html").exists()


def pipeline_files() -> None:
    Path("cli_bench_own.py").write_text(
        'import tailrace as tr\npipeline = tr.Pipeline("fraud", tr.KafkaSource("in", "a int"), lambda frame: frame, '
        'tr.KafkaSink("out"))\n'
    )
    Path("cli_bench_made.py").write_text("def make(number):\n    return {'a': number}\n")


def test_a_word_that_is_no_study_is_a_pipeline(fake: FakeBench) -> None:
    pipeline_files()
    assert _run(["bench", "cli_bench_own.py", "--generator", "cli_bench_made.py:make", "--rate", "5"]) == 0
    assert fake.study is not None
    assert fake.study.name == "pipeline"
    assert [cell.title for cell in fake.study.cells][-1] == "fraud, real time"
    assert fake.settings["rate_per_s"] == 5


def test_a_pipeline_needs_exactly_one_source_of_records(capsys: Capture, fake: FakeBench) -> None:
    pipeline_files()
    both = ["--generator", "cli_bench_made.py:make", "--replay", "topic"]
    for arguments, what in (([], "no records to send"), (both, "--generator and --replay are both given")):
        lines = refused(capsys, "cli_bench_own.py", *arguments)
        assert lines[0] == f"error: {what} [OPTION_REFUSED]"
        assert lines[-1].startswith("fix: use either --generator FILE:FUNCTION or --replay TOPIC")


def test_a_missing_pipeline_exits_with_2(capsys: Capture, fake: FakeBench) -> None:
    pipeline_files()
    lines = refused(capsys, "absent.py", "--generator", "cli_bench_made.py:make")
    assert lines[0] == "error: there is no file absent.py [PIPELINE_NOT_FOUND]"


def test_a_word_that_is_neither_a_study_nor_a_pipeline_exits_with_2(capsys: Capture, fake: FakeBench) -> None:
    pipeline_files()
    lines = refused(capsys, "sweeep", "--generator", "cli_bench_made.py:make")
    assert "PIPELINE_NOT_FOUND" in lines[0]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            ["bench"],
            ["--rate", "--seconds", "--warmup", "--payload", "--partitions", "--checkpoint-every", "--runs", "--lanes",
             "--out", "--profile", "--bootstrap-servers", "--json", "sweep", "engines", "rates", "gap",
             "study", "report"],
        ),
        (["bench", "sweep"], ["--intervals", "--seconds", "--rate", "--out"]),
        (["bench", "rates"], ["--ladder", "--bound", "--lanes"]),
        (["bench", "gap"], ["--intervals", "--no-kills"]),
        (["bench", "study"], ["NAME", "--list", "--out"]),
        (["bench", "report"], ["DIR"]),
        (["bench", "pipeline"], ["FILE", "--generator", "--replay"]),
    ],
)  # fmt: skip
def test_each_command_has_help(capsys: Capture, command: list[str], options: list[str]) -> None:
    assert _run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [option for option in options if option not in shown] == []
