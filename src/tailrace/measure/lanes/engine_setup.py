"""Set-up of other engines: a folder in the user's cache for each, its jars, its program and its settings."""

import hashlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import LaneUnavailable, ToolchainError
from tailrace.measure.lane import Announce, Cell, Command
from tailrace.toolchain import Java, cache_dir, ensure_java, find_java, ivy, pyspark_jars_dir, read_lock
from tailrace.toolchain.directories import UNWRITABLE_FIX
from tailrace.toolchain.filelock import END_HOLDER, LockTimeoutError, exclusive
from tailrace.toolchain.jars import Fetch, JarCache
from tailrace.toolchain.staging import staging

PROGRAMS = Path(__file__).resolve().parent / "programs"
"""The programs of the lanes, with the lock files of what they need."""
HEAP = "-Xmx1g"
"""Enough for every engine here, and the same for all of them."""
EACH_PARTITION = "one per partition"
CHECKPOINT_INTERVAL = "as --checkpoint-every says"
CONSUMER: Mapping[str, str] = {
    "fetch.min.bytes": "1",
    "fetch.max.wait.ms": "500",
    "isolation.level": "read_uncommitted",
}
PRODUCER: Mapping[str, str] = {"acks": "all", "linger.ms": "0"}
"""The same in every engine. The default of ``linger.ms`` differs: 5 in Kafka's clients since 4.0 and in librdkafka, 100
in Kafka Streams."""

CHECK_NETWORK = "check the network connection and try again"
_LOCK_TIMEOUT_S = 1800.0
"""How long one process waits for another that sets up the same engine: the largest takes minutes on a slow network."""
_COMPILE_TIMEOUT_S = 300.0
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


@dataclass(frozen=True)
class Engine:
    """One version of an engine."""

    name: str
    version: str
    title: str
    """Its name for a reader of the report."""

    @property
    def programs(self) -> Path:
        """The folder with its program and its lock files."""
        return PROGRAMS / self.name.replace("-", "_")

    @property
    def folder(self) -> Path:
        """Its folder in the cache, which may not exist."""
        return cache_dir() / "engines" / f"{self.name}-{self.version}"

    def refused(self, why: str, fix: str, *, detail: str = "") -> LaneUnavailable:
        """Return the error for a set-up that failed."""
        return LaneUnavailable(f"{self.title} {self.version} could not be set up", why=why, fix=fix, detail=detail)

    @contextmanager
    def set_up(self, announce: Announce) -> Iterator[None]:
        """Lock the engine's folder; raise every failure inside as `LaneUnavailable`."""

        def waits(holder: str) -> None:
            announce(f"Another process ({holder}) is setting up {self.title}; waiting for it.")

        try:
            with exclusive(self.folder / "lock", on_wait=waits, timeout_s=_LOCK_TIMEOUT_S):
                yield
        except LockTimeoutError as error:
            raise self.refused(f"process {error.holder} has been setting it up for too long", END_HOLDER) from error
        except OSError as error:
            raise self.refused(
                f"{self.folder} cannot be written ({error.strerror or error})",
                UNWRITABLE_FIX,
            ) from error
        except ToolchainError as error:
            # The fix of this error, `tailrace doctor --fix`, would repair Tailrace's own jars and not these.
            why = error.what.rstrip(".") + (f": {error.why}" if error.why else "")
            raise self.refused(why, CHECK_NETWORK, detail=error.detail or "") from error

    def java(self, announce: Announce) -> Java:
        """Return the Java to run it on; obtain one if this machine has none."""
        try:
            return ensure_java(announce)
        except ToolchainError as error:
            raise self.refused(error.what, error.fix or "install Java 17, 21 or 25") from error

    def java_again(self) -> Java:
        """Return the Java that the set-up used."""
        java = find_java()
        if java is None:
            raise self.refused("the Java of the set-up no longer exists", "try again")
        return java


def jar_paths(engine: Engine) -> list[Path]:
    """Return the paths of the engine's jars. They exist once it is set up."""
    return [engine.folder / "jars" / jar.file_name for jar in read_lock(engine.programs / "jars.lock")]


def ensure_engine_jars(engine: Engine, java: Java, announce: Announce, fetch: Fetch = ivy.fetch) -> None:
    """Fetch every jar that is missing or whose checksum is wrong. The caller holds the lock of the engine's folder."""
    cache = JarCache(engine.folder / "jars", read_lock(engine.programs / "jars.lock"), fetch)
    if any(state.state != "present" for state in cache.status()):
        cache.repair(
            java,
            announce=lambda text: announce(f"{engine.title}: {text}"),
            progress=lambda done, total, name: announce(f"{engine.title}: {done} of {total} jars ({name})"),
        )


def classpath(engine: Engine) -> list[Path]:
    """Return the class path of the engine's process: its program first."""
    return [program_jar(engine), *jar_paths(engine), *_scala("library")]


def program_jar(engine: Engine) -> Path:
    """Return the path of the compiled program. Its name contains a hash of its sources."""
    digest = hashlib.sha256()
    for file in [*_sources(engine), engine.programs / "jars.lock"]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    digest.update(" ".join(jar.name for jar in _scala("library")).encode())
    return engine.folder / f"program-{digest.hexdigest()[:16]}.jar"


def ensure_program(engine: Engine, java: Java, announce: Announce) -> None:
    """Compile the program if its jar is missing. The caller holds the lock of the folder, and the jars are there.

    Raises:
        LaneUnavailable: It does not compile.
    """
    jar = program_jar(engine)
    if jar.is_file():
        return
    announce(f"{engine.title}: compiling the lane's program, a few seconds ...")
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
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise engine.refused(f"its program was not compiled within {_COMPILE_TIMEOUT_S:.0f} s", "try again") from late
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()
        first = next((line for line in words.splitlines() if "error" in line.lower()), words[:200])
        raise engine.refused(
            f"its program does not compile: {first}", "run it with --verbose to see all errors", detail=words
        )


def _sources(engine: Engine) -> list[Path]:
    return sorted(engine.programs.glob("*.scala"))


def _scala(part: str) -> list[Path]:
    return sorted(pyspark_jars_dir().glob(f"scala-{part}-2.13.*.jar"))


def prepare_jvm(engine: Engine, announce: Announce) -> None:
    """Fetch the engine's jars and compile the lane's program if either is missing.

    Raises:
        LaneUnavailable: The set-up failed; the error says why.
    """
    java = engine.java(announce)
    with engine.set_up(announce):
        ensure_engine_jars(engine, java, announce)
        ensure_program(engine, java, announce)


def jvm_command(engine: Engine, main: str, options: Sequence[str], given: Mapping[str, str]) -> Command:
    """Return the process that runs ``main`` with the arguments ``given``."""
    java = engine.java_again()
    path = ":".join(map(str, classpath(engine)))
    return Command((str(java.executable), HEAP, _QUIET, *options, "-cp", path, main, *arguments(given)))


def below(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with a prefix before each key."""
    return {f"{prefix}{key}": value for key, value in settings.items()}


def resolved(settings: Mapping[str, str], cell: Cell, interval: Callable[[float], str]) -> dict[str, str]:
    """Return the settings with the numbers of one run instead of the placeholders.

    Args:
        settings: As the report lists them.
        cell: The run.
        interval: Formats seconds as the engine does.
    """
    words = {EACH_PARTITION: str(cell.partitions), CHECKPOINT_INTERVAL: interval(cell.checkpoint_every_s)}
    return {key: words.get(value, value) for key, value in settings.items()}


def arguments(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values as the programs read them from their command line."""
    return tuple(f"{key}={value}" for key, value in values.items())


def milliseconds(seconds: float) -> str:
    """Format seconds as Kafka's settings do: whole milliseconds without a unit."""
    return str(round(seconds * 1000))
