"""A lane's program in Scala, compiled by the compiler among PySpark's jars: no JDK is needed."""

import hashlib
import subprocess
from pathlib import Path

from tailrace.bench.engines.engine import Announce, Engine
from tailrace.bench.engines.jars import jar_paths
from tailrace.toolchain import Java, pyspark_jars_dir
from tailrace.toolchain.staging import staging

_TIMEOUT_S = 300.0


def classpath(engine: Engine) -> list[Path]:
    """What the engine's process has on its class path. The first is the program."""
    return [program_jar(engine), *jar_paths(engine), *_scala("library")]


def program_jar(engine: Engine) -> Path:
    """Where the compiled program is. Its name holds what it was made of, so that a change makes another file."""
    made_of = hashlib.sha256()
    for file in [*_sources(engine), engine.programs / "jars.lock"]:
        made_of.update(file.name.encode() + b"\0" + file.read_bytes())
    made_of.update(" ".join(jar.name for jar in _scala("library")).encode())
    return engine.folder / f"program-{made_of.hexdigest()[:16]}.jar"


def ensure_program(engine: Engine, java: Java, announce: Announce) -> None:
    """Compile the program unless that is done. The caller holds the engine's folder, and its jars are there.

    Raises:
        LaneUnavailable: It does not compile.
    """
    jar = program_jar(engine)
    if jar.is_file():
        return
    announce(f"{engine.title}: compiling the lane's program, some seconds ...")
    with staging(engine.folder) as folder:
        _compile(engine, java, folder / "program.jar")
        for older in engine.folder.glob("program-*.jar"):
            older.unlink()
        (folder / "program.jar").replace(jar)


def _compile(engine: Engine, java: Java, target: Path) -> None:
    compiler = ":".join(map(str, [*_scala("compiler"), *_scala("reflect"), *_scala("library")]))
    against = ":".join(map(str, [*jar_paths(engine), *_scala("library")]))
    command = [str(java.executable), "-Xmx1g", "-cp", compiler, "scala.tools.nsc.Main", "-classpath", against]
    command += ["-deprecation", "-feature", "-Xlint", "-Werror", "-d", str(target), *map(str, _sources(engine))]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise engine.refused(f"its program was not compiled within {_TIMEOUT_S:.0f} s", "try again") from late
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()
        first = next((line for line in words.splitlines() if "error" in line.lower()), words[:200])
        raise engine.refused(f"its program does not compile: {first}", "see --verbose", detail=words)


def _sources(engine: Engine) -> list[Path]:
    return sorted(engine.programs.glob("*.scala"))


def _scala(part: str) -> list[Path]:
    return sorted(pyspark_jars_dir().glob(f"scala-{part}-2.13.*.jar"))
