from pathlib import Path

import pytest

from tailrace.chaos.journal import FaultRecord, Journal
from tailrace.errors import OptionRefused


def record(number: int) -> FaultRecord:
    return FaultRecord(number, "jvm", "random", 1.5 * number, 8000, restarted=True)


def test_an_interrupted_run_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "faults.jsonl"
    begun = Journal(file, "print")
    assert not begun.is_resumed
    begun.add(record(1), 4.0)
    begun.add(record(2), 9.0)
    resumed = Journal(file, "print")
    assert resumed.is_resumed
    assert resumed.faults == [record(1), record(2)]
    assert resumed.load_s == 9.0


def test_a_half_written_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "faults.jsonl"
    Journal(file, "print").add(record(1), 4.0)
    with file.open("a") as opened:
        opened.write('{"number": 2, "fau')
    resumed = Journal(file, "print")
    assert resumed.faults == [record(1)]
    resumed.add(record(2), 9.0)
    assert Journal(file, "print").faults == [record(1), record(2)]


def test_a_run_with_other_options_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "faults.jsonl"
    Journal(file, "print").add(record(1), 4.0)
    with pytest.raises(OptionRefused, match="unfinished chaos run with other options"):
        Journal(file, "another")
