"""What `tailrace dlq` prints, with a queue of given letters. Real topics: tests/e2e."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.app import _run
from tailrace.dead_letters import queue, to_source
from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.queue import Queue
from tailrace.dead_letters.selection import Selection
from tailrace.errors import KafkaError
from tailrace.kafka.ports import free_ports
from tailrace.pipeline import Pipeline

from ..dead_letters.letters import TIME_MS, letter

Capture = pytest.CaptureFixture[str]
FILE = """
import tailrace as tr
pipeline = tr.Pipeline(
    name="shop",
    source=tr.KafkaSource("orders", "id long"),
    transform=lambda orders: orders,
    sink=tr.KafkaSink("decisions"),
)
"""
LETTERS: list[Letter] = []


@dataclass(frozen=True)
class FakeQueue(Queue):
    """The letters in `LETTERS`."""

    def topic_id(self) -> str:
        return "id"

    def letters(self, selection: Selection) -> Iterator[Letter]:
        return (each for each in LETTERS if selection.takes(each))


Fill = Callable[..., None]


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fill:
    """Put letters into the queue of the pipeline in shop.py."""
    (tmp_path / "shop.py").write_text(FILE)

    def put(*letters: Letter, exists: bool = True) -> None:
        def opened(pipeline: Pipeline, servers: str | None) -> Queue:
            config = {"bootstrap.servers": servers or "host:1"}
            return FakeQueue(pipeline, "shop.dead-letters", config, {0: len(letters)} if exists else {})

        monkeypatch.setattr(queue, "open_queue", opened)
        monkeypatch.setitem(globals(), "LETTERS", list(letters))

    return put


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The letters that were sent to their source; offset 3 is refused."""
    places: list[int] = []

    def replay(_: object, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
        for each in letters:
            if each.record.offset == 3:
                raise KafkaError("the broker refused it", fix="look at it")
            places.append(each.record.offset)
            on_done(each)

    monkeypatch.setattr(to_source.ToSource, "replay", replay)
    return places


def test_list_prints_a_line_for_each_group(capsys: Capture, fill: Fill) -> None:
    fill(letter(0), letter(1, time=TIME_MS + 60_000, error="broken\n\x1b[2J"), letter(2, reason="python_error"))
    assert _run(["dlq", "list", "shop.py"]) == 0
    out, err = capsys.readouterr()
    times = "2026-09-21 14:13:20Z  2026-09-21 14:1"
    assert out.splitlines() == [
        "reason        source  letters  first                 last                  error",
        f"not_json      orders        2  {times}4:20Z  broken\\n\\x1b[2J",
        f"python_error  orders        1  {times}3:20Z  Unexpected end-of-input",
    ]
    assert err == "3 dead letters of pipeline shop in topic shop.dead-letters\n"


def test_list_fits_the_terminal(capsys: Capture, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    fill(letter(error="x" * 500))
    assert _run(["dlq", "list", "shop.py"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert len(line) == 90
    assert line.endswith("xxx...")


def test_list_can_be_limited(capsys: Capture, fill: Fill) -> None:
    fill(letter(0), letter(1), letter(2, topic="returns"))
    assert _run(["dlq", "list", "shop.py", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert "3 dead letters" in err
    assert "--limit hides 1 line" in err


def test_list_as_json(capsys: Capture, fill: Fill) -> None:
    fill(letter(0), letter(1, reason="not_utf8"))
    assert _run(["dlq", "list", "shop.py", "--json", "--reason", "not_json"]) == 0
    data = json.loads(capsys.readouterr().out)
    time = "2026-09-21T14:13:20.123Z"
    group = {"reason": "not_json", "topic": "orders", "count": 1, "first": time, "last": time}
    assert data == {
        "pipeline": "shop",
        "topic": "shop.dead-letters",
        "exists": True,
        "letters": 1,
        "groups": [group | {"error": "Unexpected end-of-input"}],
    }


@pytest.mark.parametrize("command", [["list"], ["show"], ["replay", "--to", "source"]], ids=lambda words: words[0])
def test_no_letter_is_no_error(capsys: Capture, fill: Fill, command: list[str]) -> None:
    arguments = ["dlq", *command, "shop.py"]
    fill(exists=False)
    assert _run(arguments) == 0
    assert capsys.readouterr() == (
        "",
        "pipeline shop has no dead letters: topic shop.dead-letters does not exist yet\n",
    )
    fill()
    assert _run(arguments) == 0
    assert capsys.readouterr() == ("", "pipeline shop has no dead letters in topic shop.dead-letters\n")
    fill(letter())
    assert _run([*arguments, "--reason", "not_utf8"]) == 0
    assert capsys.readouterr() == ("", "no dead letter of pipeline shop in topic shop.dead-letters matches\n")
    fill(exists=False)
    assert _run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["exists"] is False


def test_show_prints_the_newest_letters(capsys: Capture, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    headers = [("trace", b"t-7"), ("odd", b"\xff"), ("null", None)]
    first = letter(3, value=b"x" * 100, before=headers, attempt=2)
    fill(first, letter(4, time=TIME_MS + 1, key=None, value=b"\x00\xff"), letter(0, time=0))
    assert _run(["dlq", "show", "shop.py", "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "orders-1@57  2026-09-21 14:13:20Z  attempt 1  not_json  letter 0@4",
        "  error    Unexpected end-of-input",
        "  key      (null)",
        "  value    0x00ff",
        "orders-1@57  2026-09-21 14:13:20Z  attempt 2  not_json  letter 0@3",
        "  error    Unexpected end-of-input",
        "  key      k",
        "  value    " + "x" * 46 + "...",
        "  headers  trace=t-7  odd=0xff  null=(null)",
    ]
    assert err == "the newest 2 of 3 dead letters; --limit shows more\n"
    assert _run(["dlq", "show", "shop.py", "--letter", "0@3", "--full"]) == 0
    assert "x" * 100 in capsys.readouterr().out


def test_show_as_json(capsys: Capture, fill: Fill) -> None:
    fill(letter(value=b"\xff", key=b"", before=[("trace", b"t"), ("null", None)]))
    assert _run(["dlq", "show", "shop.py", "--at", "orders-1@57", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["letters"]
    assert shown == {
        "letter": "0@12",
        "at": "orders-1@57",
        "topic": "orders",
        "partition": 1,
        "offset": 57,
        "event_time": "2026-09-21T14:13:15.123Z",
        "time": "2026-09-21T14:13:20.123Z",
        "attempt": 1,
        "reason": "not_json",
        "error": "Unexpected end-of-input",
        "key": "",
        "value": {"base64": "/w=="},
        "headers": [["trace", "t"], ["null", None]],
    }


def test_replay_says_what_it_did(capsys: Capture, fill: Fill, sent: list[int]) -> None:
    fill(letter(0), letter(1, attempt=9), letter(2, topic="elsewhere"), letter(3, reason="too_large"))
    assert _run(["dlq", "replay", "shop.py", "--to", "source"]) == 0
    out, err = capsys.readouterr()
    skipped = (
        "skipped: 1 with more than 5 attempts, 1 with a result that Kafka refused, "
        "1 from a topic that the pipeline does not read"
    )
    assert (out, err.splitlines()) == ("", [f"1 letter to replay; {skipped}", f"1 letter replayed; {skipped}"])
    assert _run(["dlq", "replay", "shop.py", "--to", "source", "--json", "--max-attempt", "9"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "pipeline": "shop",
        "topic": "shop.dead-letters",
        "exists": True,
        "to": "source",
        "dry_run": False,
        "letters": 1,
        "replayed_before": 1,
        "above_max_attempt": 0,
        "refused_results": 1,
        "source_not_read": 1,
    }
    assert sent == [0, 1]


def test_a_dry_run_only_counts(capsys: Capture, fill: Fill, sent: list[int], tmp_path: Path) -> None:
    fill(letter(0), letter(1))
    assert _run(["dlq", "replay", "shop.py", "--to", "pipeline", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["letters"] == 2
    assert not (tmp_path / ".tailrace").exists()
    assert sent == []


def test_an_interrupted_replay_says_how_it_continues(capsys: Capture, fill: Fill, sent: list[int]) -> None:
    fill(letter(1), letter(2), letter(3))
    assert _run(["dlq", "replay", "shop.py", "--to", "source"]) == 2
    err = capsys.readouterr().err
    assert "2 letters replayed; the same command continues with the others" in err
    assert "error: the broker refused it" in err
    fill(letter(1), letter(2), letter(4))
    assert _run(["dlq", "replay", "shop.py", "--to", "source"]) == 0
    assert "1 letter replayed; skipped: 2 replayed before" in capsys.readouterr().err
    assert sent == [1, 2, 4]


@pytest.mark.parametrize(("answer", "expected"), [("n", []), ("y", [0])])
def test_a_person_is_asked(
    capsys: Capture, fill: Fill, sent: list[int], monkeypatch: pytest.MonkeyPatch, answer: str, expected: list[int]
) -> None:
    fill(letter(0))
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr("typer.confirm", confirm)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert _run(["dlq", "replay", "shop.py", "--to", "source"]) == 0
    assert asked == ["Send 1 letter to the source topics?"]
    assert sent == expected
    assert _run(["dlq", "replay", "shop.py", "--to", "source", "--yes", "--again"]) == 0
    assert len(asked) == 1
    assert ("nothing is replayed" in capsys.readouterr().err) is (answer == "n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "shop.py"], "Usage:"),
        (["replay", "shop.py", "--to", "sink"], "Usage:"),
        (["show", "shop.py", "--limit", "0"], "Usage:"),
        (["show", "shop.py", "--letter", "7"], "[OPTION_REFUSED]"),
        (["list", "shop.py", "--since", "2026-01-31"], "has no time zone"),
        (["list", "missing.py"], "[PIPELINE_NOT_FOUND]"),
    ],
)
def test_wrong_usage_exits_with_2(capsys: Capture, fill: Fill, arguments: list[str], words: str) -> None:
    fill(letter())
    assert _run(["dlq", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err


def test_an_absent_broker_is_reported(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    assert _run(["dlq", "list", "shop.py", "--bootstrap-servers", f"127.0.0.1:{free_ports(1)[0]}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "[BROKER_UNREACHABLE]" in err


def test_a_pipeline_without_dead_letters_exits_with_1(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE.replace('name="shop"', 'name="shop", malformed="drop"'))
    assert _run(["dlq", "list", "shop.py", "--bootstrap-servers", "host:1"]) == 1
    assert "pipeline 'shop' writes no dead letters" in capsys.readouterr().err
