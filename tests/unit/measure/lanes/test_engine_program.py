"""A lane's program, with a script in the place of the Java that runs the compiler."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.errors import LaneUnavailable
from tailrace.measure.lanes.engine_setup import Engine, classpath, ensure_program, program_jar
from tailrace.toolchain import Java

COMPILES = 'while [ "$1" != -d ]; do shift; done\necho classes > "$2"\n'


@pytest.fixture
def sources(engine: Engine) -> Engine:
    (engine.programs / "jars.lock").write_text(f"some g:a:1 sha256:{'0' * 64}")
    (engine.programs / "Lane.scala").write_text("object Lane")
    engine.folder.mkdir(parents=True)
    return engine


def test_a_program_is_compiled_once_against_the_engines_jars(
    sources: Engine, java: Java, script: Callable[[str], Path], calls: Callable[[], list[str]]
) -> None:
    script(COMPILES)
    ensure_program(sources, java, str)
    assert program_jar(sources).read_text() == "classes\n"
    ensure_program(sources, java, pytest.fail)
    (call,) = calls()
    assert "scala.tools.nsc.Main" in call
    assert f"{sources.folder}/jars/a-1.jar" in call
    program, *others = classpath(sources)
    assert program == program_jar(sources)
    assert [path.name.partition("-")[0] for path in others] == ["a", "scala"]


def test_a_changed_program_is_compiled_again(sources: Engine, java: Java, script: Callable[[str], Path]) -> None:
    script(COMPILES)
    ensure_program(sources, java, str)
    old = program_jar(sources)
    (sources.programs / "Lane.scala").write_text("object Lane { }")
    ensure_program(sources, java, str)
    assert program_jar(sources) != old
    assert list(sources.folder.glob("program-*.jar")) == [program_jar(sources)]


def test_a_compile_error_makes_the_lane_unavailable(sources: Engine, java: Java, script: Callable[[str], Path]) -> None:
    script("echo 'Lane.scala:1: error: not found: value x' >&2\necho 'one error found' >&2\nexit 1\n")
    with pytest.raises(LaneUnavailable) as refused:
        ensure_program(sources, java, str)
    assert "not found: value x" in refused.value.why
    assert "one error found" in refused.value.detail
    assert [path.name for path in sources.folder.iterdir()] == []


def test_leftovers_of_a_killed_run_are_replaced(sources: Engine, java: Java, script: Callable[[str], Path]) -> None:
    leftover = sources.folder / "staging-killed"
    leftover.mkdir()
    (leftover / "program.jar").write_text("half of it")
    script(COMPILES)
    ensure_program(sources, java, str)
    assert [path.name for path in sources.folder.iterdir()] == [program_jar(sources).name]
