import os
from pathlib import Path

import platformdirs
import pytest

from tailrace.toolchain import cache_dir, directories, memory_dir, state_dir


def test_tailrace_home_moves_both_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "one"))
    assert (cache_dir(), state_dir()) == (tmp_path / "one" / "cache", tmp_path / "one" / "state")
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "two"))
    assert cache_dir() == tmp_path / "two" / "cache"


def test_without_tailrace_home_the_folders_are_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_HOME", raising=False)
    assert cache_dir() == platformdirs.user_cache_path("tailrace")
    assert state_dir() == platformdirs.user_state_path("tailrace")


def test_a_relative_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_HOME", "here")
    assert (cache_dir(), state_dir()) == (tmp_path / "here" / "cache", tmp_path / "here" / "state")


def test_the_memory_folder_belongs_to_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(directories, "_MEMORY", tmp_path)
    monkeypatch.setattr(directories, "_NEEDED_BYTES", 1)
    with memory_dir() as folder:
        assert folder is not None
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "log").mkdir()
        with memory_dir() as again:
            assert again == folder, "the same for all programs"
        assert folder.exists(), "it is in use"
        (folder / "log").rmdir()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("why", ["no room", "no such place", "another user's"])
def test_there_may_be_no_memory_folder(why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(directories, "_MEMORY", tmp_path / "nowhere" if why == "no such place" else tmp_path)
    monkeypatch.setattr(directories, "_NEEDED_BYTES", 2**60 if why == "no room" else 1)
    if why == "another user's":
        user = directories.os.getuid()
        monkeypatch.setattr(directories.os, "getuid", iter([user, user + 1]).__next__)
    with memory_dir() as folder:
        assert folder is None
    assert why == "another user's" or not list(tmp_path.iterdir())


@pytest.mark.parametrize("planted", ["a link to a folder of the user's", "open to others", "a file"])
def test_a_memory_folder_of_another_user_is_not_used(
    planted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(directories, "_MEMORY", tmp_path)
    monkeypatch.setattr(directories, "_NEEDED_BYTES", 1)
    with memory_dir() as folder:
        assert folder is not None
    precious = tmp_path / "precious"
    (precious / "own-1-abc").mkdir(parents=True)
    precious.chmod(0o700)
    if planted == "a file":
        folder.touch(mode=0o600)
    elif planted == "open to others":
        folder.mkdir()
        folder.chmod(0o770)
    else:
        folder.symlink_to(precious)
    with memory_dir() as again:
        assert again is None
    assert os.path.lexists(folder)
    assert (precious / "own-1-abc").is_dir()
