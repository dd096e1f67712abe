import io
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tailrace.cli.app import _run
from tailrace.kafka import records
from tailrace.kafka.records import TopicRecord

Capture = pytest.CaptureFixture[str]

ODD = TopicRecord("t", 1, 7, None, b'{"a":\n\t"\xff\x1b[2J"}', (("h", b"\xfe"), ("h", None)))
EVEN = TopicRecord("t", 0, 8, "Köln".encode(), b"v", ())


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", "host:1")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was sent to where."""
    seen: list[tuple[Any, ...]] = []

    def send(config: dict[str, Any], topic: str, values: Iterable[bytes], key: bytes | None) -> int:
        seen.append((config["bootstrap.servers"], topic, list(values), key))
        return len(seen[-1][2])

    monkeypatch.setattr(records, "send_records", send)
    return seen


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of a topic that has two records."""
    seen: list[dict[str, Any]] = []

    def read(config: dict[str, Any], topic: str, **options: Any) -> Iterator[TopicRecord]:
        seen.append({"servers": config["bootstrap.servers"], "topic": topic, **options})
        yield from (ODD, EVEN)

    monkeypatch.setattr(records, "read_records", read)
    return seen


def standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_records_are_sent_unchanged(capsys: Capture, sent: list[tuple[Any, ...]]) -> None:
    assert _run(["broker", "send", "t", "grün", "", "\udcff", "--key", "k"]) == 0
    assert sent == [("host:1", "t", ["grün".encode(), b"", b"\xff"], b"k")]
    assert capsys.readouterr() == ("", "3 records sent to t\n")


def test_without_records_the_lines_of_standard_input_are_sent(
    capsys: Capture, sent: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, b'{"id": 1}\r\n\n  two \n\xff')
    assert _run(["broker", "send", "t", "--bootstrap-servers", "other:2"]) == 0
    assert sent == [("other:2", "t", [b'{"id": 1}', b"  two ", b"\xff"], None)]
    standard_input(monkeypatch, b"one")
    assert _run(["broker", "send", "t"]) == 0
    assert capsys.readouterr().err == "3 records sent to t\n1 record sent to t\n"


def test_a_terminal_gets_instructions(
    capsys: Capture, sent: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    standard_input(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert _run(["broker", "send", "t"]) == 0
    assert capsys.readouterr().err.splitlines() == ["One record per line; Ctrl-D ends.", "0 records sent to t"]


def test_each_record_is_printed_on_one_line(capsys: Capture, asked: list[dict[str, Any]]) -> None:
    assert _run(["broker", "read", "t"]) == 0
    assert capsys.readouterr() == ('\t{"a":\\n\\t"\\xff\\x1b[2J"}\nKöln\tv\n', "")
    assert asked == [{"servers": "host:1", "topic": "t", "starting": "earliest", "count": None, "follow": False}]


def test_headers_come_after_the_value(capsys: Capture, asked: list[dict[str, Any]]) -> None:
    assert _run(["broker", "read", "t", "--headers", "--count", "2"]) == 0
    odd, even = capsys.readouterr().out.splitlines()
    assert odd.split("\t")[2:] == ["h=\\xfe", "h"]
    assert even == "Köln\tv"
    assert asked[0]["count"] == 2


def test_json_is_one_object_per_line(capsys: Capture, asked: list[dict[str, Any]]) -> None:
    assert _run(["broker", "read", "t", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    odd, even = map(json.loads, shown.out.splitlines())
    place = {"topic": "t", "partition": 1, "offset": 7}
    headers = [["h", "\\xfe"], ["h", None]]
    assert odd == place | {"key": None, "value": '{"a":\n\t"\\xff\x1b[2J"}', "headers": headers}
    assert (even["key"], even["value"], even["headers"]) == ("Köln", "v", [])


def test_characters_that_cannot_be_encoded_are_escaped(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert _run(["broker", "read", "t"]) == 0
    assert written.getvalue().splitlines()[1] == b"K\\xf6ln\tv"


def test_follow_names_ctrl_c_and_exits_with_0(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> Iterator[TopicRecord]:
        yield EVEN
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "read_records", interrupted)
    assert _run(["broker", "read", "t", "--from", "latest", "--follow"]) == 0
    assert capsys.readouterr() == ("Köln\tv\n", "Reading t; Ctrl-C stops it.\n")
    assert _run(["broker", "read", "t", "--count", "2"]) == 130


@pytest.mark.parametrize(
    "arguments",
    [
        ["broker", "send"],
        ["broker", "read"],
        ["broker", "read", "t", "--count", "0"],
        ["broker", "read", "t", "--from", "yesterday"],
        ["broker", "read", "t", "u"],
    ],
)
def test_wrong_usage_exits_with_2(capsys: Capture, arguments: list[str]) -> None:
    assert _run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Usage:" in shown.err


def test_a_read_that_would_return_nothing_is_refused(capsys: Capture) -> None:
    assert _run(["broker", "read", "t", "--from", "latest"]) == 2
    shown = capsys.readouterr()
    assert "[OPTION_REFUSED]" in shown.err
    assert "--follow" in shown.err


@pytest.mark.parametrize("command", ["send", "read"])
def test_without_a_broker_the_options_are_named(capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.delenv("TAILRACE_BOOTSTRAP_SERVERS")
    assert _run(["broker", command, "t"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "[BROKER_UNNAMED]" in shown.err
