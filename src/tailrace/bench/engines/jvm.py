"""A lane's process that is one JVM: its set-up and its command line."""

from collections.abc import Mapping, Sequence

from tailrace.bench.engines.engine import Announce, Engine
from tailrace.bench.engines.jars import ensure_jars
from tailrace.bench.engines.scala import classpath, ensure_program
from tailrace.bench.engines.settings import arguments
from tailrace.bench.lane import Command

HEAP = "-Xmx1g"
"""Enough for every engine here, and the same for all of them."""

_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def prepare_jvm(engine: Engine, announce: Announce) -> None:
    """Fetch the engine's jars and compile the lane's program, where that is not done.

    Raises:
        LaneUnavailable: Something refused; the error says what.
    """
    java = engine.java(announce)
    with engine.set_up(announce):
        ensure_jars(engine, java, announce)
        ensure_program(engine, java, announce)


def jvm_command(engine: Engine, main: str, options: Sequence[str], given: Mapping[str, str]) -> Command:
    """The process: ``main`` with ``given`` as its arguments."""
    java = engine.java_again()
    path = ":".join(map(str, classpath(engine)))
    return Command((str(java.executable), HEAP, _QUIET, *options, "-cp", path, main, *arguments(given)))
