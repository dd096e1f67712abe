"""Spark's JVM: launched from a class archive, with its own log, ahead of its use where possible; and its end."""

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
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
    ensure_java,
    find_java,
    jar_paths,
    package_engine,
    pyspark_jars_dir,
    state_dir,
)

LOOPBACK = "127.0.0.1"
KEPT_LOGS = 10
"""How many logs of ended sessions stay, besides those of live ones."""
_SLOW_CLASSES = (
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$",
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$",
)
"""Their static initialisers take two seconds of a session's start on a small machine."""


def log_file() -> Path:
    """Where Spark's JVM of this process writes what would otherwise fill the terminal."""
    return state_dir() / "logs" / f"spark-{os.getpid()}.log"


class JvmAhead:
    """A JVM that is started in a thread while the program does something else."""

    def __init__(self, wanted: Mapping[str, str], make_conf: Callable[[], SparkConf]) -> None:
        self.wanted = dict(wanted)
        self._make_conf = make_conf
        self._environment = _read_at_launch()
        self._gateway: Any = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="Spark's JVM", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._gateway = launch_jvm(self._make_conf())
        except BaseException as failed:  # noqa: BLE001 - raised where the JVM is asked for
            self._failed = failed

    def gateway(self) -> Any:
        """Wait until the JVM runs and return its gateway, or raise why it does not run."""
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._gateway

    def serves(self, wanted: Mapping[str, str]) -> bool:
        """Whether a context with these settings can run in it: some are fixed when a JVM starts."""
        keys = {*wanted, *self.wanted}
        return (
            is_local(wanted) == is_local(self.wanted)
            and all(wanted.get(key) == self.wanted.get(key) for key in keys if not _is_set_later(key))
            and _read_at_launch() == self._environment  # the user's file may have set some of it
        )


def is_local(settings: Mapping[str, str]) -> bool:
    """Whether driver and executors share this machine and process."""
    return settings.get("spark.master", "local").startswith("local")


def _read_at_launch() -> dict[str, str]:
    """What the launch of a JVM reads from the environment."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("SPARK_", "HADOOP_", "YARN_")) or name in ("JAVA_HOME", "PYSPARK_SUBMIT_ARGS")
    }


def _is_set_later(key: str) -> bool:
    return key in ("spark.master", "spark.app.name") or key.startswith("spark.sql.")


def is_set_up() -> bool:
    """Whether Java, jars and engine are there, so that nothing has to be obtained or built."""
    if find_java() is None or package_engine().needs_building():
        return False
    try:
        jar_paths("connector")
    except (JarMissing, JarCorrupt):
        return False
    return True


def launch_jvm(conf: SparkConf) -> Any:
    """Start Spark's JVM, its own words going to a log file instead of the terminal."""
    java = ensure_java(lambda _: None)
    archive = spark_archive(java)
    path = log_file()
    with _open_log(path) as log:
        streams = _LaunchArguments({"stderr": log}, _launch_environment(java, archive, conf))
        try:
            with _without_jars_flag():
                return launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkException as failed:
            lines = path.read_text(errors="replace").strip().splitlines()
            raise JavaUnusable(
                "Spark's JVM ended while it started",
                why=lines[-1] if lines else "it said nothing",
                fix="tailrace doctor shows which Java is used",
                detail="\n".join(lines),
            ) from failed


class _LaunchArguments(dict[str, Any]):
    """Arguments for the JVM's process. PySpark replaces the environment among them: ours is added to that."""

    def __init__(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        super().__init__(arguments)
        self._environment = environment

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, {**value, **self._environment} if name == "env" else value)


def _launch_environment(java: Java, archive: ClassArchive, conf: SparkConf) -> dict[str, str]:
    """The variables that Spark's scripts and its launcher read."""
    environment = {
        "JAVA_HOME": str(java.home),
        # The launcher lives for a moment, to put a command line together.
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    }
    if is_local(dict(conf.getAll())):
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)
    if has_own_jars(conf):
        return environment
    environment["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, jar_paths("connector")))
    options = [*map(shlex.quote, archive.options()), os.environ.get("SPARK_SUBMIT_OPTS", "")]
    environment["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
    return environment


def has_own_jars(conf: SparkConf) -> bool:
    """Whether the user chose jars or class path entries, which ours on the class path might hide or shift."""
    chosen = ("spark.jars.packages", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst")
    ours = {*map(str, jar_paths("connector")), str(package_engine().jar)}
    return (
        "SPARK_DIST_CLASSPATH" in os.environ
        or any(conf.contains(key) for key in chosen)
        or not set(str(conf.get("spark.jars", "")).split(",")) <= ours
    )


def spark_archive(java: Java) -> ClassArchive:
    """The archive of the classes that a driver loads, on that Java."""
    own = sorted(pyspark_jars_dir().glob("*.jar"))
    variables = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
    settings = tuple(f"{name}={os.environ.get(name, '')}" for name in variables)
    return ClassArchive("spark", java, (*own, *jar_paths("connector")), settings)


def keep_classes(gateway: Any) -> None:
    """Write the class archive beside the first session that has none."""
    archive = spark_archive(ensure_java(lambda _: None))
    if not archive.is_written and not archive.refusal:
        archive.write_in_background(class_path_of(gateway))


def class_path_of(gateway: Any) -> str:
    """Return the class path of a running JVM, wildcards resolved."""
    return str(gateway.jvm.java.lang.System.getProperty("java.class.path"))


def load_sql(gateway: Any) -> None:
    """Initialise what takes longest of Spark SQL while the context starts, which needs none of it."""
    with contextlib.suppress(Py4JError, OSError):  # loaded a moment later by the session itself
        loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _SLOW_CLASSES:
            gateway.jvm.java.lang.Class.forName(name, True, loader)


@contextlib.contextmanager
def _without_jars_flag() -> Iterator[None]:
    """Remove ``--jars`` from PYSPARK_SUBMIT_ARGS for a moment: it would hide ``spark.jars``, which has them, too."""
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
    """Open a fresh log and remove the oldest ones.

    The JVM inherits the log as its standard error, and with it the lock, which it holds for as long as it lives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.open("wb")
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(log, fcntl.LOCK_SH)
    _remove_old_logs(path)
    return log


def _remove_old_logs(own: Path) -> None:
    """Remove all logs but the newest and those that a live process writes; other processes may do so at this moment."""
    ages = {}
    for each in set(own.parent.glob("spark-*.log")) - {own}:
        with contextlib.suppress(OSError):
            ages[each] = each.stat().st_mtime
    for old in sorted(ages, key=ages.__getitem__)[:-KEPT_LOGS]:
        with contextlib.suppress(OSError):
            if not _is_written(old):
                old.unlink()


def _is_written(log: Path) -> bool:
    """Whether a JVM, or the process that is starting one, is alive and writes this log."""
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
    """End a JVM and wait until it is gone."""
    gateway.shutdown()
    # Spark's JVM ends when its standard input does.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(10)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
