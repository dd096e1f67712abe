import os
from pathlib import Path

import pytest

from tailrace.errors import JarMissing, JavaMissing, LaneUnavailable
from tailrace.measure.lanes import engine_setup as module
from tailrace.measure.lanes.engine_setup import Engine
from tailrace.toolchain.filelock import exclusive


def test_an_engine_has_its_own_folder_in_the_cache(engine: Engine, home: Path) -> None:
    assert engine.folder == home / "cache" / "engines" / "some-engine-1.2"


def test_an_error_inside_names_the_engine_and_the_reason(engine: Engine) -> None:
    with pytest.raises(LaneUnavailable) as refused, engine.set_up(pytest.fail):
        raise JarMissing("g:a:1 could not be fetched.", why="Maven Central could not be reached.", fix="doctor")
    assert "Some Engine 1.2" in refused.value.what
    assert refused.value.why == "g:a:1 could not be fetched: Maven Central could not be reached."
    assert "doctor" not in refused.value.fix


def test_a_folder_that_cannot_be_created_makes_the_lane_unavailable(engine: Engine, home: Path) -> None:
    home.mkdir()
    (home / "cache").write_text("a file in its place")
    with pytest.raises(LaneUnavailable, match="could not be set up") as refused, engine.set_up(pytest.fail):
        pytest.fail("there is no folder to work in")
    assert str(engine.folder) in refused.value.why


def test_one_process_waits_for_another(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_TIMEOUT_S", 0.2)
    said: list[str] = []
    held = exclusive(engine.folder / "lock", on_wait=pytest.fail)
    with held, pytest.raises(LaneUnavailable) as refused, engine.set_up(said.append):
        pytest.fail("the folder is held by another")
    assert said == [f"Another process ({os.getpid()}) is setting up Some Engine; waiting for it."]
    assert str(os.getpid()) in refused.value.why


def test_a_missing_java_makes_the_lane_unavailable(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_announce: object) -> None:
        raise JavaMissing("There is no Java here.", fix="Install one.")

    monkeypatch.setattr(module, "ensure_java", none)
    with pytest.raises(LaneUnavailable) as refused:
        engine.java(pytest.fail)
    assert (refused.value.why, refused.value.fix) == ("There is no Java here.", "Install one.")
    monkeypatch.setattr(module, "find_java", lambda: None)
    with pytest.raises(LaneUnavailable):
        engine.java_again()
