from pathlib import Path

import platformdirs
import pytest

from tailrace.toolchain import cache_dir, state_dir


def test_tailrace_home_moves_both_folders_at_any_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "one"))
    assert (cache_dir(), state_dir()) == (tmp_path / "one" / "cache", tmp_path / "one" / "state")
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "two"))
    assert cache_dir() == tmp_path / "two" / "cache"


def test_without_it_they_are_where_the_system_keeps_such_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_HOME", raising=False)
    assert cache_dir() == platformdirs.user_cache_path("tailrace")
    assert state_dir() == platformdirs.user_state_path("tailrace")


def test_a_relative_home_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_HOME", "here")
    assert (cache_dir(), state_dir()) == (tmp_path / "here" / "cache", tmp_path / "here" / "state")
