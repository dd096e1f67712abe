"""The SparkSession: Java, jars and tuned settings in place, quiet, on loopback.

Spark fixes some settings when its JVM starts, so what the user set must be known before that: it is read from where
Spark itself would read it. What Tailrace adds fills only the gaps.
"""

import contextlib
import fcntl
import itertools
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import psutil
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import utils as pyspark_utils

from tailrace.errors import EngineMismatch, EngineMissing, JavaUnusable, SettingRefused, TailraceError
from tailrace.toolchain import (
    ClassArchive,
    Java,
    check_pyspark,
    ensure_engine,
    ensure_jars,
    ensure_java,
    find_java,
    jar_paths,
    jar_status,
    package_engine,
    pyspark_jars_dir,
    state_dir,
)
from tailrace.tuning import Scope, soft_settings
from tailrace.version import VERSION

APP_NAME = "tailrace"
LOOPBACK = "127.0.0.1"
_FLAG_SETTINGS = {"--master": "spark.master", "--jars": "spark.jars"}
"""Flags of spark-submit that stand for a setting Tailrace looks at."""
KEPT_LOGS = 10
"""How many logs of ended sessions stay, besides those of live ones."""
_SLOW_CLASSES = (
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$",
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$",
)
"""Their static initialisers take two seconds of a session's start on a small machine."""
_log = logging.getLogger("tailrace")
_unlent: SparkContext | None = None
"""The context that Tailrace started for itself, until somebody else has it."""


def session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    announce: Callable[[str], None] | None = None,
) -> SparkSession:
    """A SparkSession that can read and write Kafka in real time.

    Where a Spark context is running already, its session is returned as it is.

    Args:
        app_name: The application's name; ``tailrace`` unless it is set elsewhere.
        master: Where Spark runs; ``local[N]`` on this machine with a slot per core, 4 at least, by default.
        conf: Spark settings of yours. They win over Tailrace's.
        announce: Told of what takes time, such as a first download.

    Raises:
        SettingRefused: A context is running already and does not have the settings asked for.
        ToolchainError: Java or a jar is missing and could not be obtained.
    """
    spark = unlent_session(app_name, master=master, conf=conf, announce=announce)
    lend_context()
    return spark


def unlent_session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    announce: Callable[[str], None] | None = None,
) -> SparkSession:
    """The same for Tailrace's own use: a Spark that it starts may be stopped again until somebody else has it."""
    global _unlent  # noqa: PLW0603 - a program has one Spark context
    wanted = dict(conf or {})
    if master is not None:
        wanted["spark.master"] = master
    if has_context():
        discard_jvm_ahead()
        return _running_session(wanted)
    if app_name is not None:
        wanted["spark.app.name"] = app_name
    check_pyspark()
    spark = _new_session(wanted, announce or (lambda _: None))
    _unlent = spark.sparkContext
    return spark


@contextlib.contextmanager
def spark_on_demand() -> Iterator[None]:
    """Let PySpark start a Spark of Tailrace's own when code needs one, while this lasts.

    PySpark needs it for a type in text, as in ``@udf("double")``, also where a module is only imported.
    """
    active = pyspark_utils.get_active_spark_context
    starting = threading.Lock()

    def started() -> SparkContext:
        # PySpark may ask while the context is being made.
        if not has_context() and starting.acquire(blocking=False):
            try:
                unlent_session()
            finally:
                starting.release()
        return active()

    _replace_in_pyspark(active, started)
    try:
        yield
    finally:
        _replace_in_pyspark(started, active)


def _replace_in_pyspark(old: Callable[[], SparkContext], new: Callable[[], SparkContext]) -> None:
    """Replace the function by which PySpark finds its context, under each name that its modules have for it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pyspark":
            for key in ("get_active_spark_context", "_get_active_spark_context"):
                if vars(module).get(key) is old:
                    setattr(module, key, new)


def lend_context() -> None:
    """From now on the running context is somebody's: a query runs in it, or DataFrames were made from it."""
    global _unlent  # noqa: PLW0603
    _unlent = None


def is_unlent() -> bool:
    """Whether nobody would miss the running context."""
    return _unlent is not None and _unlent is SparkContext._active_spark_context


def has_context() -> bool:
    """Whether Spark is running in this program."""
    return SparkContext._active_spark_context is not None


def is_local(settings: Mapping[str, str]) -> bool:
    """Whether driver and executors share this machine and process."""
    return settings.get("spark.master", "local").startswith("local")


def log_file() -> Path:
    """Where Spark's JVM of this process writes what would otherwise fill the terminal."""
    return state_dir() / "logs" / f"spark-{os.getpid()}.log"


def user_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What the user set, from the weakest place to the strongest.

    Spark's own order: ``spark-defaults.conf``, then ``PYSPARK_SUBMIT_ARGS`` (or the spark-submit that started this
    program), then what the program itself gives.
    """
    settings = dict(_spark_defaults_file())
    for flag, value in _submit_flags():
        if flag in ("--conf", "-c") and "=" in value:
            key, _, text = value.partition("=")
            settings[key] = text
        elif flag in _FLAG_SETTINGS:
            settings[_FLAG_SETTINGS[flag]] = value
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
        settings |= dict(SparkConf().getAll())
    return settings | dict(given)


def _submit_flags() -> Iterator[tuple[str, str]]:
    """The flags in PYSPARK_SUBMIT_ARGS with their values, written as ``--flag value`` or ``--flag=value``."""
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, following in itertools.pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag.startswith("-"):
            yield flag, value if equals else following


def _running_session(wanted: Mapping[str, str]) -> SparkSession:
    """The session of the running context, if it is what the caller asks for."""
    spark = SparkSession.builder.getOrCreate()
    for key, value in wanted.items():
        if spark.conf.get(key, None) != value:
            # Neither value is shown: settings hold passwords, too.
            raise SettingRefused(
                f"a Spark context is running already, with another {key}",
                why="what tr.session() sets is set when a context starts",
                fix="call tr.session() before anything else starts Spark, or stop the running one: spark.stop()",
            )
    return spark


def _new_session(wanted: Mapping[str, str], announce: Callable[[str], None]) -> SparkSession:
    """Start a JVM (or join the one that spark-submit started) and a context in it."""
    conf = _context_conf(wanted, announce)
    _quiet_loggers()
    gateway = SparkContext._gateway or _jvm_ahead(wanted) or _launch(conf)
    loading = threading.Thread(target=_load_sql, args=(gateway,), name="Spark SQL's classes", daemon=True)
    loading.start()
    context = SparkContext(gateway=gateway, conf=conf)
    # Joined first: two threads that initialise the same classes in another order could wait for each other.
    loading.join()
    spark = SparkSession(context)
    _quiet_accumulator_server(context)
    require_engine(spark)
    if gateway.proc is not None and not _has_own_jars(conf):
        _keep_classes(gateway)
    return spark


def _load_sql(gateway: Any) -> None:
    """Initialise what takes longest of Spark SQL while the context starts, which needs none of it."""
    with contextlib.suppress(Py4JError, OSError):  # loaded a moment later by the session itself
        loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _SLOW_CLASSES:
            gateway.jvm.java.lang.Class.forName(name, True, loader)


def _context_conf(wanted: Mapping[str, str], announce: Callable[[str], None]) -> SparkConf:
    """The settings of a context: what the user chose, and the soft defaults."""
    java = ensure_java(announce)
    jars = ensure_jars(java, ["connector"], announce)["connector"]
    engine = ensure_engine(java, jars, announce)
    chosen = user_settings(wanted)
    chosen.setdefault("spark.app.name", APP_NAME)
    chosen.setdefault("spark.master", f"local[{max(os.cpu_count() or 1, 4)}]")
    settings = soft_settings(Scope.CONTEXT, local=is_local(chosen)) | chosen
    all_jars = [*filter(None, chosen.get("spark.jars", "").split(",")), *map(str, jars), str(engine)]
    settings["spark.jars"] = ",".join(dict.fromkeys(all_jars))
    _prepare_environment(local=is_local(chosen))
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    return conf


def require_engine(spark: SparkSession) -> None:
    """See that the running Spark has the engine, and the one that belongs to this Tailrace.

    Raises:
        EngineMissing: It has none.
        EngineMismatch: It has another one.
    """
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource("tailrace-engine.properties") is None:
        raise EngineMissing(
            "the running Spark has no Tailrace engine",
            why="its session was made without one, and jars cannot be added once it runs",
            fix="make the session with tr.session(); without the engine no Python function but a plain @udf can run in "
            "real time, by five settings of Spark's own (docs/concepts/python-functions.md)",
        )
    version = str(jvm.org.apache.spark.sql.tailrace.Engine.version())
    if version != VERSION:
        raise EngineMismatch(
            f"the running Spark has the engine of Tailrace {version}, and this is Tailrace {VERSION}",
            why="another version's jar is in spark.jars or on Spark's class path",
            fix="leave it out: tr.session() adds the right one",
        )


def _prepare_environment(*, local: bool) -> None:
    """What PySpark reads from the environment for as long as it runs."""
    # Without it, workers run whatever `python3` is on the PATH, which lacks this environment's packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _quiet_loggers() -> None:
    """Silence what PySpark logs besides raising it; a level of the user's own stays.

    PySpark writes each analysis error to standard error as JSON, stack trace and all, and py4j each call that Ctrl-C
    interrupts. The exceptions themselves say the same.
    """
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.CRITICAL)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        if logger.level == logging.WARNING:  # as PySpark makes them
            logger.setLevel(logging.CRITICAL)


def _quiet_accumulator_server(context: SparkContext) -> None:
    """Log what PySpark's accumulator server would print to standard error.

    If the JVM is killed, the server's thread meets the end of its connection, and ``socketserver`` prints the stack
    trace in the middle of the program's own output. The query's error tells the same.
    """
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: _log.debug("PySpark's accumulator server failed", exc_info=True)


class _JvmAhead:
    """A JVM that is started in a thread while the program does something else."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self.wanted = dict(wanted)
        self._gateway: Any = None
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="Spark's JVM", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._gateway = _launch(_context_conf(self.wanted, lambda _: None))
        except BaseException as failed:  # noqa: BLE001 - raised where the JVM is asked for
            self._failed = failed

    def gateway(self) -> Any:
        self._thread.join()
        if self._failed is not None:
            raise self._failed
        return self._gateway

    def serves(self, wanted: Mapping[str, str]) -> bool:
        """Whether a context with these settings can run in it: some are fixed when a JVM starts."""
        keys = {*wanted, *self.wanted}
        return all(wanted.get(key) == self.wanted.get(key) for key in keys if not _is_set_later(key))


_ahead: _JvmAhead | None = None


def _is_set_later(key: str) -> bool:
    return key in ("spark.master", "spark.app.name") or key.startswith("spark.sql.")


def start_jvm_ahead(conf: Mapping[str, str]) -> None:
    """Start Spark's JVM now, in a thread; the next session uses it.

    A JVM takes a second to start. Meanwhile a user's file can be loaded and a broker asked.
    Nothing happens if Spark runs already, or if what has to be prepared first takes long and should be announced.
    """
    global _ahead  # noqa: PLW0603 - a program has one JVM
    busy = has_context() or SparkContext._gateway is not None or _ahead is not None
    if busy or "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ or not _is_set_up():
        return
    check_pyspark()
    _ahead = _JvmAhead(conf)


def _is_set_up() -> bool:
    """Whether Java, jars and engine are there, so that nothing has to be obtained or built."""
    if find_java() is None or package_engine().needs_building():
        return False
    return all(state.state == "present" for state in jar_status() if state.jar.set_name == "connector")


def _jvm_ahead(wanted: Mapping[str, str]) -> Any:
    """The JVM that was started ahead, if one was and can be used; it is ended if it cannot."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is None:
        return None
    gateway = ahead.gateway()
    if ahead.serves(wanted):
        return gateway
    _end_jvm(gateway)
    return None


def discard_jvm_ahead() -> None:
    """End the JVM that was started ahead: the program started another one itself."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is not None:
        with contextlib.suppress(TailraceError):
            _end_jvm(ahead.gateway())


def _launch(conf: SparkConf) -> Any:
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
    if _has_own_jars(conf):
        return environment
    environment["SPARK_DIST_CLASSPATH"] = os.pathsep.join(map(str, jar_paths("connector")))
    options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), *map(shlex.quote, archive.options())]
    environment["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
    return environment


def _has_own_jars(conf: SparkConf) -> bool:
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


def write_spark_archive(announce: Callable[[str], None]) -> None:
    """Write the class archive of Spark's driver, if it is not there, and wait for it.

    Raises:
        ArchiveNotWrittenError: Java refused to write it.
    """
    archive = spark_archive(ensure_java(announce))
    if archive.is_written or has_context():
        return
    announce("Saving Spark's loaded classes, so that every start is faster: half a minute, once ...")
    gateway = _launch(_context_conf({}, announce))
    class_path = _class_path(gateway)
    _end_jvm(gateway)
    archive.write(class_path)


def _keep_classes(gateway: Any) -> None:
    """Write the class archive beside the first session that has none."""
    archive = spark_archive(ensure_java(lambda _: None))
    if not archive.is_written and not archive.refusal:
        archive.write_in_background(_class_path(gateway))


def _class_path(gateway: Any) -> str:
    return str(gateway.jvm.java.lang.System.getProperty("java.class.path"))


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


def _spark_defaults_file() -> Iterator[tuple[str, str]]:
    """The settings in the user's ``spark-defaults.conf``, where there is one."""
    spark_home = Path(os.environ.get("SPARK_HOME") or pyspark_jars_dir().parent)
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    path = folder / "spark-defaults.conf"
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        # A Java properties file: key and value are parted by white space, an equals sign or a colon.
        if found := re.fullmatch(r"\s*([^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*", line):
            yield found.group(1), found.group(2)


def end_session() -> None:
    """Stop Spark and its JVM, and wait until they are gone."""
    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings():
            # PySpark warns of a JVM that is gone, which is what this function wants.
            warnings.simplefilter("ignore", RuntimeWarning)
            context.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    _end_jvm(gateway)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _end_jvm(gateway: Any) -> None:
    gateway.shutdown()
    # Spark's JVM ends when its standard input does.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(10)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
