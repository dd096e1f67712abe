"""Building the engine, with a compiler made of a small script that packs what it is given."""

import json
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tailrace.errors import EngineBuildFailed, EngineMissing
from tailrace.toolchain import engine_jar
from tailrace.toolchain.engine_jar import PROPERTIES, EngineJar, package_engine
from tailrace.toolchain.java import Java
from tailrace.toolchain.spark import pyspark_jars_dir
from tailrace.version import VERSION

COMPILER = """\
import json, sys, zipfile
from pathlib import Path

with Path({calls!r}).open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
{before}
with zipfile.ZipFile(sys.argv[sys.argv.index("-d") + 1], "w") as jar:
    for source in sys.argv[1:]:
        if source.endswith(".scala"):
            jar.writestr(Path(source).stem + ".class", Path(source).read_text())
"""
FAILS = """
print("warning: something else")
print("jvm/Engine.scala:3: error: not found: value oops")
sys.exit("one error found")
"""


class Bench:
    """A folder with sources, a place for the jar, and the compiler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "jvm"
        self.sources.mkdir()
        (self.sources / "Engine.scala").write_text("object Engine\n")
        (self.sources / "Records.scala").write_text("object Records\n")
        (self.sources / "NOTES.md").write_text("no source\n")
        self.engine = EngineJar(folder / "package" / "engine.jar", self.sources)
        self.java = Java(folder / "java", folder / "java" / "bin" / "java", "17.0.1", 17, "PATH")
        self.said: list[str] = []
        self.compiler("")

    def compiler(self, before: str) -> None:
        """Let the compiler do something before it does its work."""
        self.java.executable.parent.mkdir(parents=True, exist_ok=True)
        script = self.folder / "compiler.py"
        script.write_text(COMPILER.format(calls=str(self.folder / "calls"), before=before))
        self.java.executable.write_text(f"#!/bin/sh\nexec '{sys.executable}' -IS '{script}' \"$@\"\n")
        self.java.executable.chmod(0o755)

    def ensure(self) -> Path:
        connector = [Path("/jars/kafka.jar"), Path("/jars/clients.jar")]
        return self.engine.ensure(self.java, connector, self.said.append)

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def properties(self) -> dict[str, str]:
        with zipfile.ZipFile(self.engine.jar) as jar:
            return dict(line.split("=") for line in jar.read(PROPERTIES).decode().splitlines())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_missing_jar_is_built_and_announced(bench: Bench) -> None:
    assert bench.engine.needs_building()
    assert bench.ensure() == bench.engine.jar
    assert bench.said == ["Building the engine, which takes some seconds ..."]
    with zipfile.ZipFile(bench.engine.jar) as jar:
        assert set(jar.namelist()) == {"Engine.class", "Records.class", PROPERTIES}
        assert jar.testzip() is None
    assert {path.name for path in bench.engine.jar.parent.iterdir()} == {"engine.jar", "engine.lock"}


def test_the_jar_has_version_and_checksum(bench: Bench) -> None:
    bench.ensure()
    assert bench.properties() == {"version": VERSION, "digest": bench.engine.digest()}


def test_the_jar_is_compiled_against_the_installed_spark(bench: Bench) -> None:
    bench.ensure()
    (call,) = bench.calls
    assert call[call.index("-cp") + 1].split(":") == [f"{pyspark_jars_dir()}/*", "/jars/kafka.jar", "/jars/clients.jar"]
    assert call[call.index("scala.tools.nsc.Main") :][-2:] == [
        str(bench.sources / name) for name in ("Engine.scala", "Records.scala")
    ]
    assert "-Werror" in call, "a warning is an error here as in Python"


def test_a_current_jar_is_not_built_again(bench: Bench) -> None:
    bench.ensure()
    assert not bench.engine.needs_building()
    (bench.sources / "NOTES.md").write_text("other words\n")
    (bench.sources / "Engine.scala").touch()
    bench.ensure()
    assert len(bench.calls) == len(bench.said) == 1


@pytest.mark.parametrize("change", ["changed", "added", "removed", "renamed"])
def test_changed_sources_are_built_again(bench: Bench, change: str) -> None:
    bench.ensure()
    source = bench.sources / "Records.scala"
    match change:
        case "changed":
            source.write_text("object Records { def more = 1 }\n")
        case "added":
            (bench.sources / "Lineage.scala").write_text("object Lineage\n")
        case "removed":
            source.unlink()
        case "renamed":
            source.rename(bench.sources / "Record.scala")
    assert bench.engine.needs_building()
    bench.ensure()
    assert len(bench.calls) == 2
    assert not bench.engine.needs_building()
    with zipfile.ZipFile(bench.engine.jar) as jar:
        classes = {f"{path.stem}.class": path.read_text() for path in bench.sources.rglob("*.scala")}
        assert {name: jar.read(name).decode() for name in jar.namelist() if name != PROPERTIES} == classes


def test_another_version_of_tailrace_is_built_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ensure()
    monkeypatch.setattr(engine_jar, "VERSION", "9.9.9")
    bench.ensure()
    assert len(bench.calls) == 2
    assert bench.properties()["version"] == "9.9.9"


def test_another_spark_is_built_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.ensure()
    monkeypatch.setattr(engine_jar, "pyspark_version", lambda: "4.3.99")
    bench.ensure()
    assert len(bench.calls) == 2


def test_the_checksum_does_not_depend_on_the_folder(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert Bench(tmp_path / "elsewhere").engine.digest() == bench.engine.digest()


@pytest.mark.parametrize("damage", ["empty", "no zip", "cut off", "without properties", "other properties"])
def test_a_damaged_jar_is_replaced(bench: Bench, damage: str) -> None:
    jar = bench.ensure()
    match damage:
        case "empty":
            jar.write_bytes(b"")
        case "no zip":
            jar.write_bytes(b"x" * 1000)
        case "cut off":
            jar.write_bytes(jar.read_bytes()[:-30])
        case _:
            with zipfile.ZipFile(jar, "w") as written:
                written.writestr("Engine.class", "object Engine\n")
                if damage == "other properties":
                    written.writestr(PROPERTIES, "version\n=\ndigests=1\n")
    assert bench.ensure() == jar
    assert len(bench.calls) == 2
    assert bench.properties()["digest"] == bench.engine.digest()


def test_a_jar_without_sources_is_used_unchanged(bench: Bench, tmp_path: Path) -> None:
    jar = bench.ensure()
    installed = EngineJar(jar, tmp_path / "absent")
    assert not installed.needs_building()
    assert installed.ensure(bench.java, [], pytest.fail) == jar
    assert len(bench.calls) == 1


def test_without_jar_and_sources_the_installation_is_incomplete(bench: Bench, tmp_path: Path) -> None:
    nothing = EngineJar(tmp_path / "package" / "engine.jar", tmp_path / "absent")
    with pytest.raises(EngineMissing) as missing:
        nothing.ensure(bench.java, [], pytest.fail)
    assert str(nothing.jar) in missing.value.what
    assert "pip install" in missing.value.fix
    assert bench.calls == []


def test_a_compile_error_has_the_compilers_first_error(bench: Bench) -> None:
    bench.compiler(FAILS)
    with pytest.raises(EngineBuildFailed) as failed:
        bench.ensure()
    assert str(bench.sources) in failed.value.what
    assert failed.value.why == "jvm/Engine.scala:3: error: not found: value oops"
    assert "--verbose" in failed.value.fix
    assert "something else" in failed.value.detail
    assert "one error found" in failed.value.detail
    assert [path.name for path in bench.engine.jar.parent.iterdir()] == ["engine.lock"], "nothing half-made is left"


def test_a_compile_error_without_an_error_line_has_the_whole_output(bench: Bench) -> None:
    bench.compiler("sys.exit('Killed')\n")
    with pytest.raises(EngineBuildFailed) as failed:
        bench.ensure()
    assert failed.value.why == "Killed"


def test_a_failed_build_keeps_the_previous_jar(bench: Bench) -> None:
    before = bench.ensure().read_bytes()
    (bench.sources / "Engine.scala").write_text("oops\n")
    bench.compiler(FAILS)
    with pytest.raises(EngineBuildFailed):
        bench.ensure()
    assert bench.engine.jar.read_bytes() == before
    assert bench.engine.needs_building(), "so that the next start tries again"


def test_a_compiler_that_does_not_end_is_killed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.compiler("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(engine_jar, "_COMPILE_TIMEOUT_S", 0.3)
    started = time.monotonic()
    with pytest.raises(EngineBuildFailed, match="did not compile within") as failed:
        bench.ensure()
    assert time.monotonic() - started < 20
    assert failed.value.fix
    assert not bench.engine.jar.exists()


def test_leftovers_of_a_killed_build_are_removed(bench: Bench) -> None:
    leftover = bench.engine.jar.parent / "staging-old"
    leftover.mkdir(parents=True)
    (leftover / "engine.jar").write_bytes(b"half")
    bench.ensure()
    assert not leftover.exists()


def test_concurrent_builds_build_once(bench: Bench) -> None:
    together = bench.folder / "together"
    # The compiler ends only after somebody else has come and waits, so that they really meet.
    bench.compiler(
        f"import time\nend = time.monotonic() + 20\nwhile not Path({str(together)!r}).exists():\n"
        "    assert time.monotonic() < end\n    time.sleep(0.01)\n"
    )

    def say(text: str) -> None:
        bench.said.append(text)
        if text.startswith("Waiting"):
            together.touch()

    with ThreadPoolExecutor(4) as pool:
        jars = list(pool.map(lambda _: bench.engine.ensure(bench.java, [], say), range(4)))
    assert jars == [bench.engine.jar] * 4
    assert len(bench.calls) == 1
    assert bench.said.count("Building the engine, which takes some seconds ...") == 1
    assert any(text.startswith("Waiting for process ") for text in bench.said)


def test_the_checkout_has_the_sources_of_the_engine() -> None:
    engine = package_engine()
    assert engine.jar.parent.name == "tailrace"
    assert (engine.jar.parent / "version.py").is_file()
    assert list(engine.sources.rglob("*.scala"))
