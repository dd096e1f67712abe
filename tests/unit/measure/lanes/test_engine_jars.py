"""An engine's jars, with a fetcher that writes files in the place of Ivy."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tailrace.errors import JarMissing, LaneUnavailable
from tailrace.measure.lanes.engine_setup import Engine, ensure_engine_jars, jar_paths
from tailrace.toolchain import Jar, Java
from tailrace.toolchain.ivy import Progress


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def locked(engine: Engine) -> Engine:
    lines = [f"some g:{name}:1 sha256:{digest(name)}" for name in ("a", "b")]
    (engine.programs / "jars.lock").write_text("\n".join(lines))
    return engine


class Fetcher:
    """Puts each jar's name into its file."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, java: Java, jars: Sequence[Jar], folder: Path, progress: Progress) -> Path:
        self.asked.append([jar.artifact for jar in jars])
        for number, jar in enumerate(jars, start=1):
            (folder / jar.file_name).write_text(jar.artifact)
            progress(number, len(jars), jar.file_name)
        return folder


def refuses(java: Java, jars: Sequence[Jar], folder: Path, progress: Progress) -> Path:
    raise JarMissing("g:a:1 and 1 more jar could not be fetched.", why="Maven Central could not be reached.")


def test_jars_are_fetched_once_with_progress(locked: Engine, java: Java) -> None:
    fetch = Fetcher()
    said: list[str] = []
    ensure_engine_jars(locked, java, said.append, fetch)
    assert [path.read_text() for path in jar_paths(locked)] == ["a", "b"]
    assert said[0].startswith("Some Engine: Downloading 2 jars")
    assert said[1:] == ["Some Engine: 1 of 2 jars (a-1.jar)", "Some Engine: 2 of 2 jars (b-1.jar)"]
    ensure_engine_jars(locked, java, pytest.fail, refuses)
    assert fetch.asked == [["a", "b"]]


def test_a_corrupt_jar_is_fetched_again(locked: Engine, java: Java) -> None:
    ensure_engine_jars(locked, java, str, Fetcher())
    jar_paths(locked)[1].write_text("half of it")
    fetch = Fetcher()
    ensure_engine_jars(locked, java, str, fetch)
    assert fetch.asked == [["b"]]
    assert jar_paths(locked)[1].read_text() == "b"


def test_leftovers_of_a_killed_run_are_replaced(locked: Engine, java: Java) -> None:
    leftover = locked.folder / "jars" / "staging-killed" / "a-1.jar"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("half of it")
    ensure_engine_jars(locked, java, str, Fetcher())
    assert not leftover.parent.exists()


def test_without_a_network_the_lane_is_unavailable_until_later(locked: Engine, java: Java) -> None:
    with pytest.raises(LaneUnavailable) as refused, locked.set_up(pytest.fail):
        ensure_engine_jars(locked, java, str, refuses)
    assert "Maven Central could not be reached" in refused.value.why
    with locked.set_up(pytest.fail):
        ensure_engine_jars(locked, java, str, Fetcher())
    assert all(path.is_file() for path in jar_paths(locked))
