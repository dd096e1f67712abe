"""The SparkSession: Java, jars and tuned settings in place, quiet, on loopback.

Spark fixes some settings when its JVM starts, so what the user set must be known before that: it is read from where
Spark itself would read it. What Tailrace adds fills only the gaps.
"""

import contextlib
import itertools
import logging
import os
import re
import shlex
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

from tailrace.errors import EngineMismatch, EngineMissing, SettingRefused
from tailrace.spark_jvm import (
    LOOPBACK,
    JvmAhead,
    class_path_of,
    end_jvm,
    has_own_jars,
    is_local,
    is_set_up,
    keep_classes,
    launch_jvm,
    load_sql,
    spark_archive,
)
from tailrace.toolchain import (
    check_pyspark,
    ensure_engine,
    ensure_jars,
    ensure_java,
    pyspark_jars_dir,
)
from tailrace.tuning import Scope, soft_settings
from tailrace.version import VERSION

APP_NAME = "tailrace"
_FLAG_SETTINGS = {"--master": "spark.master", "--jars": "spark.jars"}
"""Flags of spark-submit that stand for a setting Tailrace looks at."""
_log = logging.getLogger("tailrace")
_ahead: JvmAhead | None = None
"""The JVM that was started before a session asks for one."""
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
    archives: bool = True,
) -> SparkSession:
    """The same for Tailrace's own use: a Spark that it starts may be stopped again until somebody else has it.

    With ``archives`` the first session without a class archive writes one in the background.
    """
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
    spark = _new_session(wanted, announce or (lambda _: None), archives=archives)
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


def _new_session(wanted: Mapping[str, str], announce: Callable[[str], None], *, archives: bool) -> SparkSession:
    """Start a JVM (or join the one that spark-submit started) and a context in it."""
    conf = _context_conf(wanted, announce)
    gateway = SparkContext._gateway or _jvm_ahead(wanted) or launch_jvm(conf)
    _prepare_environment(local=is_local(dict(conf.getAll())))
    _quiet_loggers()
    loading = threading.Thread(target=load_sql, args=(gateway,), name="Spark SQL's classes", daemon=True)
    loading.start()
    context = SparkContext(gateway=gateway, conf=conf)
    # Joined first: two threads that initialise the same classes in another order could wait for each other.
    loading.join()
    spark = SparkSession(context)
    _quiet_accumulator_server(context)
    require_engine(spark)
    if archives and gateway.proc is not None and not has_own_jars(conf):
        keep_classes(gateway)
    return spark


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
    # When the JVM is gone, py4j logs a stack trace through the root logger instead of its own.
    logging.getLogger().addFilter(_is_not_py4js)
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        if logger.level == logging.WARNING:  # as PySpark makes them
            logger.setLevel(logging.CRITICAL)


def _is_not_py4js(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _quiet_accumulator_server(context: SparkContext) -> None:
    """Log what PySpark's accumulator server would print to standard error.

    If the JVM is killed, the server's thread meets the end of its connection, and ``socketserver`` prints the stack
    trace in the middle of the program's own output. The query's error tells the same.
    """
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: _log.debug("PySpark's accumulator server failed", exc_info=True)


def start_jvm_ahead(conf: Mapping[str, str], master: str | None = None) -> None:
    """Start Spark's JVM now, in a thread; the next session uses it.

    A JVM takes a second to start. Meanwhile a user's file can be loaded and a broker asked.
    Nothing happens if Spark runs already, or if what has to be prepared first takes long and should be announced.
    """
    global _ahead  # noqa: PLW0603 - a program has one JVM
    busy = has_context() or SparkContext._gateway is not None or _ahead is not None
    if busy or "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ or not is_set_up():
        return
    check_pyspark()
    wanted = dict(conf) | ({"spark.master": master} if master is not None else {})
    _ahead = JvmAhead(wanted, lambda: _context_conf(wanted, lambda _: None))


def _jvm_ahead(wanted: Mapping[str, str]) -> Any:
    """The JVM that was started ahead, if one was and can be used; it is ended if it cannot."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is None:
        return None
    if ahead.serves(wanted):
        return ahead.gateway()
    _discard(ahead)
    return None


def discard_jvm_ahead() -> None:
    """End the JVM that was started ahead and is not needed."""
    global _ahead
    ahead, _ahead = _ahead, None
    if ahead is not None:
        _discard(ahead)


def _discard(ahead: JvmAhead) -> None:
    with contextlib.suppress(Exception):  # why a JVM that nobody needs did not start is nobody's concern
        end_jvm(ahead.gateway())


def uses_archive() -> bool:
    """Whether sessions with the user's settings use the class archive; their own jars on the class path exclude it."""
    return not has_own_jars(_context_conf({}, lambda _: None))


def write_spark_archive(announce: Callable[[str], None]) -> None:
    """Write the class archive of Spark's driver, if it is not there, and wait for it.

    Raises:
        ArchiveNotWrittenError: Java refused to write it.
    """
    archive = spark_archive(ensure_java(announce))
    if archive.is_written or archive.is_off or has_context():
        return
    announce("Saving Spark's loaded classes, so that every start is faster: half a minute, once ...")
    gateway = launch_jvm(_context_conf({}, announce))
    class_path = class_path_of(gateway)
    end_jvm(gateway)
    archive.write(class_path)


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
    discard_jvm_ahead()
    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings():
            # PySpark warns of a JVM that is gone, which is what this function wants.
            warnings.simplefilter("ignore", RuntimeWarning)
            context.stop()
    gateway: Any = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    end_jvm(gateway)
    SparkContext._gateway = None
    SparkContext._jvm = None
