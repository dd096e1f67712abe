import json
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace import __version__
from tailrace.cli import output
from tailrace.cli.app import _run
from tailrace.errors import QueryFailed

PIPELINE = (
    "import tailrace as tr\n"
    'pipeline = tr.Pipeline(name="fraud", source=tr.KafkaSource("in", schema="a int"), '
    'transform=lambda frame: frame, sink=tr.KafkaSink("out"))\n'
)

Capture = pytest.CaptureFixture[str]


def test_help_lists_the_commands_on_standard_output(capsys: Capture) -> None:
    assert _run(["--help"]) == 0
    shown = capsys.readouterr()
    listed = shown.out.partition("Commands")[2]
    assert [name for name in ("demo", "init", "run", "doctor", "bench", "broker") if name not in listed] == []
    assert shown.err == ""


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (
            ["run"],
            ["--mode", "--checkpoint-every", "--checkpoint", "--bootstrap-servers", "--conf", "--once", "--json"],
        ),
        (["demo"], ["--seconds", "--warmup", "--rate", "--partitions", "--json"]),
        (["doctor"], ["--fix", "--quiet", "--bootstrap-servers", "--json"]),
        (["init"], ["NAME"]),
        (["broker"], ["start", "stop", "status", "topic", "send", "read"]),
        (["broker", "send"], ["TOPIC", "RECORD", "--key", "--bootstrap-servers"]),
        (["broker", "read"], ["TOPIC", "--count", "--from", "--follow", "--headers", "--bootstrap-servers", "--json"]),
        (["broker", "start"], ["--name", "--port", "--fresh", "--json"]),
    ],
)
def test_each_command_has_help(capsys: Capture, command: list[str], options: list[str]) -> None:
    assert _run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [option for option in options if option not in shown] == []


def test_version_prints_only_the_version(capsys: Capture) -> None:
    assert _run(["--version"]) == 0
    assert capsys.readouterr() == (f"{__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["unknown"],
        ["run"],
        ["run", "x.py", "--unknown"],
        ["run", "x.py", "--mode", "sometimes"],
        ["run", "x.py", "--shuffle-partitions", "two"],
        ["demo", "--seconds", "soon"],
        ["broker", "start", "--port", "70000"],
    ],
)
def test_wrong_usage_exits_with_2_and_the_usage_on_standard_error(capsys: Capture, arguments: list[str]) -> None:
    assert _run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Usage:" in shown.err
    assert "defect" not in shown.err


def test_a_missing_file_is_an_error_with_code_and_fix(capsys: Capture) -> None:
    assert _run(["run", "absent.py"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "error: there is no file absent.py [PIPELINE_NOT_FOUND]"
    assert lines[1].startswith("  fix: ")


def test_what_why_and_fix_each_have_a_line(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "cli_empty.py").write_text("x = 1\n")
    assert _run(["run", "cli_empty.py"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    what, why, fix = shown.err.splitlines()
    assert what == "error: cli_empty.py defines no pipeline [PIPELINE_NOT_FOUND]"
    assert why.startswith("  why: ")
    assert fix.startswith("  fix: ")


def test_a_setting_without_an_equals_sign_is_refused(capsys: Capture) -> None:
    assert _run(["run", "x.py", "--conf", "spark.some.key"]) != 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "--conf 'spark.some.key' is not a setting [OPTION_REFUSED]" in shown.err
    assert "fix: write it as --conf spark.some.key=value" in shown.err


@pytest.mark.parametrize("arguments", [["run", "x.py", "--conf", "oops"], ["broker", "stop", "--name", "a/b"]])
def test_a_command_with_impossible_arguments_exits_with_2(arguments: list[str]) -> None:
    assert _run(arguments) == 2


def test_a_short_checkpoint_interval_is_refused_before_the_file_is_loaded(capsys: Capture) -> None:
    assert _run(["run", "absent.py", "--checkpoint-every", "1s"]) == 2
    assert "DURATION_INVALID" in capsys.readouterr().err


def test_without_a_broker_run_exits_with_2_and_names_the_options(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "cli_fraud.py").write_text(PIPELINE)
    assert _run(["run", "cli_fraud.py"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "BROKER_UNNAMED" in shown.err
    assert "tailrace broker start" in shown.err
    assert not (tmp_path / ".tailrace").exists(), "nothing was begun"


def test_a_users_exception_exits_with_1_and_a_trace_only_if_verbose(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "cli_raising.py").write_text("1 / 0\n")
    assert _run(["run", "cli_raising.py"]) == 1
    quiet = capsys.readouterr().err
    assert "cli_raising.py line 1" in quiet
    assert "Traceback" not in quiet
    assert _run(["run", "cli_raising.py", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_status_without_brokers_separates_data_and_messages(capsys: Capture) -> None:
    assert _run(["broker", "status", "--json"]) == 0
    data = capsys.readouterr()
    assert json.loads(data.out) == {"brokers": []}
    assert data.err == ""
    assert _run(["broker", "status"]) == 0
    words = capsys.readouterr()
    assert words.out == ""
    assert "no broker is running" in words.err


def test_stopping_a_missing_broker_exits_with_2(capsys: Capture) -> None:
    assert _run(["broker", "stop"]) == 2
    assert "[BROKER_NOT_RUNNING]" in capsys.readouterr().err


def test_errors_are_printed_without_markup(capsys: Capture) -> None:
    output.print_error(QueryFailed("[bold]x[/] in /a[1]/b", why="local[4]", fix="--master 'local[8]'"))
    assert capsys.readouterr().err == (
        "error: [bold]x[/] in /a[1]/b [QUERY_FAILED]\n  why: local[4]\n  fix: --master 'local[8]'\n"
    )


def test_an_unexpected_exception_exits_with_1_and_a_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("tailrace.kafka.broker.running_brokers", broken)
    assert _run(["broker", "status"]) == 1
    shown = capsys.readouterr().err
    assert "error: RuntimeError: first line\n" in shown
    assert "Traceback" not in shown


def test_ctrl_c_exits_with_130(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tailrace.kafka.broker.running_brokers", interrupted)
    assert _run(["broker", "status"]) == 130
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "defect" not in shown.err


def test_python_m_tailrace_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "run", "absent.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "[PIPELINE_NOT_FOUND]" in done.stderr
