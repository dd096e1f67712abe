"""Importing is free of effects, and `--help` is quick because it stays away from Spark."""

import json
import subprocess
import sys

import pytest

HEAVY = ("pyspark", "py4j", "confluent_kafka", "numpy", "pandas", "pyarrow")

# An audit hook sees every way of starting a process or reaching the network, whoever takes it.
WATCH = """
import json, sys, threading
WATCHED = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "socket.connect")
seen = []
sys.addaudithook(lambda event, _: event in WATCHED and seen.append(event))
"""
REPORT = """
print(json.dumps({"modules": sorted(sys.modules), "events": seen, "threads": threading.active_count()}))
"""


def observe(program: str) -> tuple[set[str], list[str], int]:
    """What the program imported, the processes and connections it began, and how many threads it has."""
    command = [sys.executable, "-c", WATCH + program + REPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    return {name.partition(".")[0] for name in seen["modules"]}, seen["events"], seen["threads"]


HELP = """
from tailrace.cli.app import _run
assert _run({arguments!r}) == 0
"""


@pytest.mark.parametrize(
    "program",
    [
        "import tailrace\n",
        "import tailrace.testing, tailrace.testing.plugin\n",
        "import tailrace.errors, tailrace.pipeline, tailrace.tuning, tailrace.checkpoint, tailrace.toolchain\n",
        "import tailrace.preflight.checks, tailrace.preflight.run_checks\n",
        HELP.format(arguments=["--help"]),
        HELP.format(arguments=["run", "--help"]),
        HELP.format(arguments=["broker", "start", "--help"]),
        HELP.format(arguments=["dlq", "replay", "--help"]),
        HELP.format(arguments=["demo", "--help"]),
    ],
    ids=[
        "import tailrace",
        "test kit",
        "definitions and toolchain",
        "checks",
        "--help",
        "run --help",
        "broker start --help",
        "dlq replay --help",
        "demo --help",
    ],
)
def test_import_loads_nothing_heavy_and_starts_nothing(program: str) -> None:
    modules, events, threads = observe(program)
    assert modules.isdisjoint(HEAVY), modules & set(HEAVY)
    assert events == []
    assert threads == 1


def test_the_observer_detects_imports_and_processes() -> None:
    program = (
        "import numpy, subprocess, threading, sys\n"
        "subprocess.run([sys.executable, '-c', ''])\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    modules, events, threads = observe(program)
    assert "numpy" in modules
    assert "subprocess.Popen" in events
    assert threads == 2
