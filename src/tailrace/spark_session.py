"""Create the SparkSession: with Java, jars and tuned settings, quiet, on loopback.

Spark fixes some settings when its JVM starts, so Tailrace must know the user's settings before: it reads them from the
same files and variables as Spark. Tailrace sets only what the user did not set.
"""

import contextlib
import itertools
import logging
import os
import re
import shlex
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql import utils as pyspark_utils

from tailrace.errors import ClusterUnreachable, EngineMismatch, EngineMissing, SettingRefused
from tailrace.spark_jvm import (
    LOOPBACK,
    Launch,
    PrelaunchedJvm,
    class_path_of,
    end_jvm,
    is_on_this_machine,
    is_toolchain_ready,
    launch_jvm,
    preload_sql_classes,
    write_archive_in_background,
)
from tailrace.toolchain import (
    check_pyspark,
    ensure_engine,
    ensure_jars,
    ensure_java,
    spark_home,
)
from tailrace.tuning import Scope, soft_settings
from tailrace.version import VERSION

APP_NAME = "tailrace"
_MASTER_TIMEOUT_S = 5.0
_FLAG_SETTINGS = {"--master": "spark.master", "--jars": "spark.jars"}
"""The spark-submit flags that set a Spark setting which Tailrace reads."""
_log = logging.getLogger("tailrace")
_prelaunched: PrelaunchedJvm | None = None
"""The JVM that was started before a session needs it."""
_replaceable: SparkContext | None = None
"""The context that Tailrace started and may stop again, because nobody else uses it yet."""


def session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    announce: Callable[[str], None] | None = None,
) -> SparkSession:
    """Return a SparkSession that can read and write Kafka in real time.

    If a Spark context is running, return its session unchanged.

    Args:
        app_name: The name of the application; ``tailrace`` unless it is set elsewhere.
        master: The Spark master; by default ``local[N]`` with one slot per core, at least 4.
        conf: Your Spark settings. They override Tailrace's.
        announce: Called with a message before a step that takes long, such as a first download.

    Raises:
        SettingRefused: A running context has other settings.
        ToolchainError: Java or a jar is missing, and the download failed.
    """
    spark = replaceable_session(app_name, master=master, conf=conf, announce=announce)
    pin_context()
    return spark


def replaceable_session(
    app_name: str | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    announce: Callable[[str], None] | None = None,
    archives: bool = True,
) -> SparkSession:
    """Return a session for Tailrace's own use: Tailrace may stop its context until :func:`pin_context` is called.

    With ``archives``, the first session without a class archive writes one in the background.
    """
    global _replaceable  # noqa: PLW0603 - a program has one Spark context
    settings = dict(conf or {})
    if master is not None:
        settings["spark.master"] = master
    if has_context():
        discard_prelaunched_jvm()
        return _running_session(settings)
    if app_name is not None:
        settings["spark.app.name"] = app_name
    check_pyspark()
    spark = _new_session(settings, announce or (lambda _: None), archives=archives)
    _replaceable = spark.sparkContext
    return spark


@contextlib.contextmanager
def spark_on_demand() -> Iterator[None]:
    """Inside this block, start Spark when PySpark needs a context.

    PySpark needs one to parse a type string, as in ``@udf("double")``, even if a module is only imported.
    """
    active = pyspark_utils.get_active_spark_context
    starting = threading.Lock()

    def started() -> SparkContext:
        # PySpark may call this while the context is starting.
        if not has_context() and starting.acquire(blocking=False):
            try:
                # With the settings of the run, so that it can use this context.
                replaceable_session(conf=_prelaunched.settings if _prelaunched is not None else None)
            finally:
                starting.release()
        return active()

    _replace_in_pyspark(active, started)
    try:
        yield
    finally:
        _replace_in_pyspark(started, active)


def _replace_in_pyspark(old: Callable[[], SparkContext], new: Callable[[], SparkContext]) -> None:
    """Replace PySpark's function that returns the active context, in every module that imported it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pyspark":
            for key in ("get_active_spark_context", "_get_active_spark_context"):
                if vars(module).get(key) is old:
                    setattr(module, key, new)


def pin_context() -> None:
    """Keep the running context: a query runs in it, or the user has its session."""
    global _replaceable  # noqa: PLW0603
    _replaceable = None


def is_replaceable() -> bool:
    """Return whether Tailrace may stop the running context and start another one."""
    return _replaceable is not None and _replaceable is SparkContext._active_spark_context


def has_context() -> bool:
    """Return whether a Spark context is active in this process."""
    return SparkContext._active_spark_context is not None


def running_master() -> str | None:
    """Return the master of the running Spark context, or None if there is none."""
    context = SparkContext._active_spark_context
    return None if context is None else context.master


def user_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the user's settings; later sources override earlier ones, as in Spark.

    The order: ``spark-defaults.conf``, ``PYSPARK_SUBMIT_ARGS`` (or the spark-submit that started this program), the
    settings in the program.
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
    """Yield the flags in PYSPARK_SUBMIT_ARGS with their values: ``--flag value`` or ``--flag=value``."""
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for word, following in itertools.pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag.startswith("-"):
            yield flag, value if equals else following


def _running_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of the running context if it has these settings."""
    spark = SparkSession.builder.getOrCreate()
    for key, value in settings.items():
        if spark.conf.get(key, None) != value:
            # No value in the message: a setting may contain a password.
            raise SettingRefused(
                f"the running Spark context has another {key}",
                why="tr.session() can set it only when a context starts",
                fix="call tr.session() before any other code starts Spark, or stop the running context: spark.stop()",
            )
    return spark


def _new_session(settings: Mapping[str, str], announce: Callable[[str], None], *, archives: bool) -> SparkSession:
    """Start a JVM, or use the one that spark-submit started, and start a context in it."""
    launch = _prepare_launch(settings, announce)
    _require_master(str(launch.conf.get("spark.master")))
    gateway = SparkContext._gateway or _take_prelaunched_jvm(settings) or launch_jvm(launch)
    _prepare_environment(local=is_on_this_machine(dict(launch.conf.getAll())))
    _quiet_loggers()
    loading = threading.Thread(target=preload_sql_classes, args=(gateway,), name="Spark SQL's classes", daemon=True)
    loading.start()
    context = SparkContext(gateway=gateway, conf=launch.conf)
    # Join first: two threads that initialise the same classes in different order could deadlock.
    loading.join()
    spark = SparkSession(context)
    _quiet_accumulator_server(context)
    require_engine(spark)
    if archives and gateway.proc is not None and not launch.has_user_jars:
        write_archive_in_background(gateway, launch.archive)
    return spark


def _require_master(url: str) -> None:
    """Check that a standalone master responds: Spark itself would try for a minute.

    Raises:
        ClusterUnreachable: None does.
    """
    if not url.startswith("spark://"):
        return
    refused = ""
    for address in url.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_TIMEOUT_S).close()
        except (OSError, ValueError) as failed:
            refused = str(failed)
        else:
            return
    raise ClusterUnreachable(
        f"no Spark master responds at {url}",
        why=refused,
        fix="check the address; for a cluster on this machine: tailrace cluster status",
    )


def _prepare_launch(settings: Mapping[str, str], announce: Callable[[str], None]) -> Launch:
    """Provide Java, jars and engine, and merge the user's settings with the soft defaults."""
    java = ensure_java(announce)
    connector = ensure_jars(java, ["connector"], announce)["connector"]
    engine = ensure_engine(java, connector, announce)
    chosen = user_settings(settings)
    chosen.setdefault("spark.app.name", APP_NAME)
    chosen.setdefault("spark.master", f"local[{max(os.cpu_count() or 1, 4)}]")
    merged = soft_settings(Scope.CONTEXT, local=is_on_this_machine(chosen)) | chosen
    all_jars = [*filter(None, chosen.get("spark.jars", "").split(",")), *map(str, connector), str(engine)]
    merged["spark.jars"] = ",".join(dict.fromkeys(all_jars))
    conf = SparkConf(loadDefaults=False)
    for key, value in merged.items():
        conf.set(key, value)
    return Launch(java, connector, engine, conf)


def require_engine(spark: SparkSession) -> None:
    """Check that the running Spark has the engine of this Tailrace version.

    Raises:
        EngineMissing: Spark runs without the engine.
        EngineMismatch: Spark runs with the engine of another version.
    """
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource("tailrace-engine.properties") is None:
        raise EngineMissing(
            "the running Spark has no Tailrace engine",
            why="its session was created without the engine, and a running Spark accepts no more jars",
            fix="create the session with tr.session(); without the engine only plain @udf functions can run in real "
            "time, with five Spark settings (docs/concepts/python-functions.md)",
        )
    version = str(jvm.org.apache.spark.sql.tailrace.Engine.version())
    if version != VERSION:
        raise EngineMismatch(
            f"the running Spark has the engine of Tailrace {version}, but this is Tailrace {VERSION}",
            why="spark.jars or Spark's class path contains the jar of another version",
            fix="remove that jar: tr.session() adds the right one",
        )


def _prepare_environment(*, local: bool) -> None:
    """Set the variables that PySpark reads while it runs."""
    # Otherwise workers run the first `python3` on the PATH, which lacks the packages of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _quiet_loggers() -> None:
    """Silence log lines that repeat an exception; keep a log level that the user set.

    PySpark logs each analysis error to standard error as JSON with its stack trace, and py4j logs each call that Ctrl-C
    interrupts. The exceptions contain the same information.
    """
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.CRITICAL)
    # When the JVM has ended, py4j logs a stack trace with the root logger instead of its own.
    logging.getLogger().addFilter(_is_not_py4js)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        if logger.level == logging.WARNING:  # PySpark's default
            logger.setLevel(logging.CRITICAL)


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _quiet_accumulator_server(context: SparkContext) -> None:
    """Log the end of a connection to PySpark's accumulator server instead of printing a stack trace.

    If the JVM is killed, its connection ends. The query's error reports the same problem.
    """
    server: Any = context._accumulatorServer
    report = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if isinstance(sys.exception(), EOFError | ConnectionError):
            _log.debug("a connection to PySpark's accumulator server ended", exc_info=True)
        else:
            report(request, address)

    server.handle_error = handle_error


def prelaunch_jvm(conf: Mapping[str, str], master: str | None = None) -> None:
    """Start Spark's JVM now, in a thread; the next session uses it.

    A JVM takes a second to start. Meanwhile the program can load the user's file and connect to the broker.
    Do nothing if Spark is running, or if a download or a build must be announced first.
    """
    global _prelaunched  # noqa: PLW0603 - a program has one JVM
    busy = has_context() or SparkContext._gateway is not None or _prelaunched is not None
    if busy or "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ or not is_toolchain_ready():
        return
    check_pyspark()
    settings = dict(conf) | ({"spark.master": master} if master is not None else {})
    _prelaunched = PrelaunchedJvm(settings, lambda: launch_jvm(_prepare_launch(settings, lambda _: None)))


def _take_prelaunched_jvm(settings: Mapping[str, str]) -> Any:
    """Return the gateway of the prelaunched JVM, or None; stop the JVM if its settings differ."""
    global _prelaunched
    jvm, _prelaunched = _prelaunched, None
    if jvm is None:
        return None
    if jvm.can_run(settings):
        return jvm.gateway()
    _discard(jvm)
    return None


def discard_prelaunched_jvm() -> None:
    """Stop the prelaunched JVM, which is not needed."""
    global _prelaunched
    jvm, _prelaunched = _prelaunched, None
    if jvm is not None:
        _discard(jvm)


def _discard(jvm: PrelaunchedJvm) -> None:
    with contextlib.suppress(Exception):  # it is not needed, so a failed start does not matter
        end_jvm(jvm.gateway())


def uses_archive() -> bool:
    """Return whether sessions use the class archive; they do not if the user adds jars to the class path."""
    return not _prepare_launch({}, lambda _: None).has_user_jars


def write_spark_archive(announce: Callable[[str], None]) -> None:
    """Write the class archive for Spark drivers, unless it exists, and wait for it.

    Raises:
        ArchiveNotWrittenError: Java did not write it.
    """
    launch = _prepare_launch({}, announce)
    archive = launch.archive
    if archive.is_written or archive.is_off or has_context():
        return
    announce("Writing a class archive so that Spark starts faster: half a minute, once ...")
    gateway = launch_jvm(launch)
    class_path = class_path_of(gateway)
    end_jvm(gateway)
    archive.write(class_path)


def _spark_defaults_file() -> Iterator[tuple[str, str]]:
    """Yield the settings in the user's ``spark-defaults.conf``, if it exists."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")
    path = folder / "spark-defaults.conf"
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        # A Java properties file: white space, an equals sign or a colon separates key and value.
        if match := re.fullmatch(r"\s*([^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*?)\s*", line):
            yield match.group(1), match.group(2)


def end_session() -> None:
    """Stop Spark and its JVM, and wait until they have ended."""
    discard_prelaunched_jvm()
    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings():
            # PySpark warns if the JVM has ended, which is the goal here.
            warnings.simplefilter("ignore", RuntimeWarning)
            context.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    end_jvm(gateway)
    SparkContext._gateway = None
    SparkContext._jvm = None
