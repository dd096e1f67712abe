"""Spark, the broker and the engine's build on one Java.

`javas.py` runs it after `smoke.py` in the same process, with TAILRACE_SMOKE_JAVA set to the major version.
"""

import os
import re
from pathlib import Path

import psutil

from tailrace.testing.bench import shared_bench
from tailrace.toolchain import ensure_java, jar_paths, package_engine
from tailrace.toolchain.engine_jar import EngineJar

WANTED = os.environ["TAILRACE_SMOKE_JAVA"]


def broker_home() -> Path:
    """Return the home of the Java that the broker's process runs on."""
    root = psutil.Process(shared_bench().broker.pid)
    for process in [root, *root.children(recursive=True)]:
        executable = Path(process.exe())
        if executable.name == "java":
            return executable.parent.parent
    raise AssertionError("the broker's process tree has no Java")


def major_of(home: Path) -> str:
    match = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{home} names no version"
    return match.group(1)


def test_spark_runs_on_this_java() -> None:
    jvm = shared_bench().spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.System.getProperty("java.specification.version") == WANTED


def test_the_broker_runs_on_this_java() -> None:
    assert major_of(broker_home()) == WANTED


def test_the_engine_compiles(tmp_path: Path) -> None:
    """A fresh clone compiles the engine on the user's Java, whose deprecations are errors."""
    java = ensure_java(print)
    assert str(java.major) == WANTED
    engine = EngineJar(tmp_path / "engine.jar", package_engine().sources)
    assert engine.ensure(java, jar_paths("connector"), print).is_file()
