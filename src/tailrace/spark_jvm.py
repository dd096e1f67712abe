"""Start and stop Spark's JVM: with a class archive, its own log file, and before its first use if possible."""

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from tailrace.errors import JarCorrupt, JarMissing, JavaUnusable
from tailrace.toolchain import (
    ClassArchive,
    Java,
    find_java,
    jar_paths,
    package_engine,
    pyspark_jars_dir,
    state_dir,
)

LOOPBACK = "127.0.0.1"
KEPT_LOGS = 10
"""How many logs of ended sessions to keep."""
_SLOW_CLASSES = (
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$",
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$",
)
"""On a small machine, their static initialisers take two seconds of a session's start."""


def log_file() -> Path:
    """Return the log file of this process's JVM, which would otherwise write to the terminal."""
    return state_dir() / "logs" / f"spark-{os.getpid()}.log"


class PrelaunchedJvm:
    """A JVM that starts in a thread while the program does other work."""

    def __init__(self, settings: Mapping[str, str], launch: Callable[[], Any]) -> None:
        self.settings = dict(settings)
        self._launch = launch
        self._environment = _launch_variables()
        self._gateway: Any = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="Spark's JVM", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._gateway = self._launch()
        except BaseException as failed:  # noqa: BLE001 - gateway() raises it
            self._failed = failed

    def gateway(self) -> Any:
        """Wait until the JVM runs and return its gateway, or raise the error of its start."""
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._gateway

    def can_run(self, settings: Mapping[str, str]) -> bool:
        """Return whether a context with these settings can use this JVM: some settings are fixed at its start."""
        keys = {*settings, *self.settings}
        return (
            is_on_this_machine(settings) == is_on_this_machine(self.settings)
            and all(settings.get(key) == self.settings.get(key) for key in keys if not _is_set_later(key))
            and _launch_variables() == self._environment  # the user's file may have changed it
        )


def is_on_this_machine(settings: Mapping[str, str]) -> bool:
    """Return whether driver and executors are on this machine: in local mode, or with a master on loopback."""
    master = settings.get("spark.master", "local")
    return master.startswith("local") or re.fullmatch(r"spark://(127\.[0-9.]+|localhost):[0-9]+", master) is not None


def _launch_variables() -> dict[str, str]:
    """Return the environment variables that the launch of a JVM reads."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("SPARK_", "HADOOP_", "YARN_")) or name in ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS")
    }


def _is_set_later(key: str) -> bool:
    return key in ("spark.master", "spark.app.name") or key.startswith("spark.sql.")


def is_toolchain_ready() -> bool:
    """Return whether Java, jars and engine are present, so that nothing must be downloaded or built."""
    if find_java() is None or package_engine().needs_building():
        return False
    try:
        jar_paths("connector")
    except (JarMissing, JarCorrupt):
        return False
    return True


@dataclass(frozen=True)
class Launch:
    """What a JVM is started with.

    Attributes:
        java: The Java to run.
        connector: The jars of the Kafka connector.
        engine: The engine jar.
        conf: The settings of the Spark context.
    """

    java: Java
    connector: Sequence[Path]
    engine: Path
    conf: SparkConf

    @property
    def archive(self) -> ClassArchive:
        """The class archive for this JVM."""
        return spark_archive(self.java, self.connector)

    @property
    def has_user_jars(self) -> bool:
        """Whether the user chose jars or class path entries, which Tailrace's class path could hide or reorder."""
        chosen = ("spark.jars.packages", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst")
        own = {*map(str, self.connector), str(self.engine)}
        return (
            "SPARK_DIST_CLASSPATH" in os.environ
            or any(self.conf.contains(key) for key in chosen)
            or not set(str(self.conf.get("spark.jars", "")).split(",")) <= own
        )


def launch_jvm(launch: Launch) -> Any:
    """Start Spark's JVM with a log file for its output, and return its gateway."""
    path = log_file()
    with _open_log(path) as log:
        arguments = _LaunchArguments({"stderr": log}, _launch_environment(launch))
        try:
            with _without_jars_flag():
                return launch_gateway(launch.conf, arguments)  # type: ignore[no-untyped-call]
        except PySparkException as failed:
            lines = path.read_text(errors="replace").strip().splitlines()
            raise JavaUnusable(
                "Spark's JVM ended during its start",
                why=lines[-1] if lines else "it printed nothing",
                fix="check which Java is used: tailrace doctor",
                detail="\n".join(lines),
            ) from failed


class _LaunchArguments(dict[str, Any]):
    """Process arguments of the JVM. PySpark overwrites ``env``; this class adds Tailrace's variables to it."""

    def __init__(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self._environment = environment

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, {**value, **self._environment} if name == "env" else value)


def _launch_environment(launch: Launch) -> dict[str, str]:
    """Return the variables for Spark's scripts and its launcher."""
    environment = {
        "JAVA_HOME": str(launch.java.home),
        # The launcher runs only for a moment, to build a command line.
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    }
    if is_on_this_machine(dict(launch.conf.getAll())):
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)
    if launch.has_user_jars:
        return environment
    environment["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, launch.connector))
    options = [*map(shlex.quote, launch.archive.options()), os.environ.get("SPARK_SUBMIT_OPTS", "")]
    environment["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
    return environment


def spark_archive(java: Java, connector: Sequence[Path]) -> ClassArchive:
    """Return the class archive for a Spark driver on this Java."""
    pyspark_jars = sorted(pyspark_jars_dir().glob("*.jar"))
    variables = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
    settings = tuple(f"{name}={os.environ.get(name, '')}" for name in variables)
    return ClassArchive("spark", java, (*pyspark_jars, *connector), settings)


def write_archive_in_background(gateway: Any, archive: ClassArchive) -> None:
    """Write the class archive of a running JVM in the background, unless it exists."""
    if not archive.is_written and not archive.refusal:
        archive.write_in_background(class_path_of(gateway))


def class_path_of(gateway: Any) -> str:
    """Return the class path of a running JVM, with wildcards resolved."""
    return str(gateway.jvm.java.lang.System.getProperty("java.class.path"))


def preload_sql_classes(gateway: Any) -> None:
    """Initialise the slowest classes of Spark SQL while the context starts."""
    with contextlib.suppress(Py4JError, OSError):  # the session loads them later anyway
        loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _SLOW_CLASSES:
            gateway.jvm.java.lang.Class.forName(name, True, loader)


@contextlib.contextmanager
def _without_jars_flag() -> Iterator[None]:
    """Remove ``--jars`` from PYSPARK_SUBMIT_ARGS for a moment: it would hide ``spark.jars``, which includes them."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    if before is None:
        yield
        return
    os.environ["PYSPARK_SUBMIT_ARGS"] = re.sub(r"--jars[= ]\s*\S+", "", before)
    try:
        yield
    finally:
        os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _open_log(path: Path) -> IO[bytes]:
    """Open a new log and remove the oldest ones.

    The JVM inherits the log as its standard error, together with the lock, and holds the lock while it runs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("wb")
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(log, fcntl.LOCK_SH)
    _remove_old_logs(path)
    return log


def _remove_old_logs(own: Path) -> None:
    """Remove all logs but the newest and those of live processes; other processes may do the same meanwhile."""
    ages = {}
    for each in set(own.parent.glob("spark-*.log")) - {own}:
        with contextlib.suppress(OSError):
            ages[each] = each.stat().st_mtime
    for old in sorted(ages, key=ages.__getitem__)[:-KEPT_LOGS]:
        with contextlib.suppress(OSError):
            if not _is_written(old):
                old.unlink()


def _is_written(log: Path) -> bool:
    """Return whether the JVM of this log, or the process that starts it, is alive."""
    pid = log.stem.removeprefix("spark-")
    if pid.isdigit() and psutil.pid_exists(int(pid)):
        return True
    with log.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def end_jvm(gateway: Any) -> None:
    """Stop a JVM and wait until it has ended."""
    gateway.shutdown()
    # Spark's JVM exits when its standard input closes.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(10)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
