import json
from pathlib import Path

import pytest

from tailrace.dead_letters.progress import Progress
from tailrace.errors import CheckpointInUse, CheckpointUnwritable

from .letters import letter


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".tailrace" / "dead-letters"


def noted(*offsets: int, partition: int = 0, topic_id: str = "id") -> Progress:
    progress = Progress("shop", topic_id)
    with progress.held():
        progress.note(letter(offset, place_partition=partition) for offset in offsets)
    return progress


def replayed(topic_id: str = "id", partition: int = 0) -> list[int]:
    progress = Progress("shop", topic_id)
    return [offset for offset in range(20) if letter(offset, place_partition=partition) in progress]


def test_without_a_file_none_is_replayed(folder: Path) -> None:
    assert replayed() == []
    assert not folder.exists(), "reading writes nothing"


def test_replayed_letters_stay_noted(folder: Path) -> None:
    assert letter(5) in noted(3, 4, 5, 9)
    noted(0, 1, partition=1)
    assert replayed() == [3, 4, 5, 9]
    assert replayed(partition=1) == [0, 1]
    lines = (folder / "shop.jsonl").read_text().splitlines()
    assert len(lines) == 3, "one for each range"
    assert json.loads(lines[0]) == {"topic_id": "id", "partition": 0, "first": 3, "last": 5}


def test_a_topic_that_is_created_again_starts_anew() -> None:
    noted(3)
    noted(7, topic_id="new")
    assert replayed() == [3]
    assert replayed("new") == [7]


def test_an_incomplete_line_is_ignored_and_ended(folder: Path) -> None:
    noted(3)
    with (folder / "shop.jsonl").open("a") as file:
        file.write('{"topic_id": "id", "parti')
    assert replayed() == [3]
    noted(4)
    assert replayed() == [3, 4]


def test_one_replay_at_a_time() -> None:
    with Progress("shop", "id").held():
        with pytest.raises(CheckpointInUse) as busy, Progress("shop", "id").held():
            pass
        with Progress("other", "id").held():
            pass
    assert "process" in busy.value.what
    assert busy.value.fix


def test_letters_that_another_replay_noted_meanwhile_are_known() -> None:
    early = Progress("shop", "id")
    noted(3)
    with early.held():
        assert letter(3) in early


def test_a_file_that_cannot_be_written_is_an_error_before_the_first_letter(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file")
    with pytest.raises(CheckpointUnwritable) as refused, Progress("shop", "id").held():
        pytest.fail("the replay began")
    assert "folder" in refused.value.fix
