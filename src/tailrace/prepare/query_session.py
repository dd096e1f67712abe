"""The Spark that a query runs in, and the session of its own that it gets there."""

import os
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.checkpoint import Checkpoint
from tailrace.errors import DefinitionError, SettingRefused, ToolchainError
from tailrace.pipeline import Mode
from tailrace.plan.slots import Slots, cores_for
from tailrace.prepare.options import RunOptions
from tailrace.spark_jvm import is_local
from tailrace.spark_session import has_context, is_replaceable, replaceable_session, require_engine, user_settings
from tailrace.tuning import SHUFFLE_PARTITIONS, query_settings

_ADDED_TO = ("spark.jars", "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
"""To what a user gives here, Spark and Tailrace add their own."""


def spark_for(
    options: RunOptions,
    partitions: int | None,
    announce: Callable[[str], None] | None,
) -> tuple[SparkSession, bool]:
    """The session to start from, and whether it may be rebuilt with more slots.

    A session that the program holds already is never rebuilt: DataFrames made from it would die with it.
    """
    if has_context():
        mine = is_replaceable() and options.master is None
        return replaceable_session(master=options.master), mine
    _refuse_connect_mode()
    if options.master is not None or "spark.master" in user_settings(options.conf):
        return replaceable_session(master=options.master, conf=options.conf, announce=announce), False
    # Most pipelines have one shuffle at most: a guess that is right for them spares starting twice.
    guess = max((partitions or 0) + _asked_partitions(options, partitions or 0), 4)
    cores = cores_for(guess, user_settings(options.conf))
    return replaceable_session(conf={"spark.master": f"local[{cores}]"} | dict(options.conf), announce=announce), True


def _asked_partitions(options: RunOptions, otherwise: int) -> int:
    asked = options.conf.get(SHUFFLE_PARTITIONS, "")
    return int(asked) if asked.isdigit() else otherwise


def rebuilt(spark: SparkSession, slots: Slots) -> SparkSession:
    """The same session with as many slots as the query needs; nobody else has it yet."""
    kept = {key: value for key, value in spark.sparkContext.getConf().getAll() if _is_kept(key)}
    spark.stop()
    return replaceable_session(conf=kept | {"spark.master": f"local[{cores_for(slots.required, kept)}]"})


def _is_kept(key: str) -> bool:
    """Whether a setting of a context was chosen, rather than made up by Spark for that one context."""
    return not key.startswith(("spark.app.id", "spark.app.start", "spark.app.submit", "spark.driver.port"))


def query_session(
    spark: SparkSession, options: RunOptions, checkpoint: Checkpoint, source_partitions: int | None
) -> SparkSession:
    """A session for this one query: the user's settings, and the soft ones wherever they set nothing."""
    if not engine.has_kafka_connector(spark):
        raise ToolchainError(
            "the running Spark has no Kafka connector",
            why="its session was made without one, and jars cannot be added once it runs",
            fix="make the session with tr.session()",
        )
    require_engine(spark)
    own = engine.clone_session(spark)
    for key, value in options.conf.items():
        _choose(own, key, value)
    chosen = engine.explicit_settings(own)
    local = checkpoint.path is not None and is_local(chosen)
    soft = query_settings(realtime=options.mode is Mode.REALTIME, local=local)
    shuffle_partitions = _shuffle_partitions(options, chosen, checkpoint) or source_partitions
    if shuffle_partitions is not None:
        own.conf.set(SHUFFLE_PARTITIONS, str(shuffle_partitions))
    for key, value in soft.items():
        if key not in chosen:
            own.conf.set(key, value)
    return own


def _choose(own: SparkSession, key: str, value: str) -> None:
    """Give the query a setting of the user's, or say why it comes too late."""
    in_force = own.conf.get(key, None) or ""
    if in_force == value or (key in _ADDED_TO and all(part in in_force for part in value.split(","))):
        return
    try:
        own.conf.set(key, value)
    except PySparkException as fixed:
        raise SettingRefused(
            f"{key} cannot be changed any more",
            why="a Spark context is running, and this setting is fixed when it starts",
            fix="give it to tr.session(conf=...) before anything else starts Spark",
        ) from fixed


def _shuffle_partitions(options: RunOptions, chosen: Mapping[str, str], checkpoint: Checkpoint) -> int | None:
    """How many tasks read each shuffle: what the checkpoint pins, else what the user set, if either did."""
    pinned = checkpoint.pinned_shuffle_partitions()
    asked = options.conf.get(SHUFFLE_PARTITIONS)
    if asked is not None and not (asked.isdigit() and int(asked) > 0):
        raise SettingRefused(f"{SHUFFLE_PARTITIONS}={asked} is no number of partitions", fix="--shuffle-partitions 2")
    if pinned is not None:
        # Spark itself restores what the checkpoint says; slots must be counted with that number.
        return pinned
    value = chosen.get(SHUFFLE_PARTITIONS)
    return int(value) if value is not None else None


def _refuse_connect_mode() -> None:
    """Refuse to start a Spark in a program that PySpark was told to run on a Spark Connect server."""
    if "SPARK_REMOTE" in os.environ or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        raise _connect_refused()


def refuse_connect(what: object) -> None:
    """Refuse what was made by a Spark Connect session.

    Raises:
        DefinitionError: It was.
    """
    if type(what).__module__.startswith("pyspark.sql.connect"):
        raise _connect_refused()


def _connect_refused() -> DefinitionError:
    return DefinitionError(
        "a query of a Spark Connect session cannot be checked or started here",
        why="its plan is made on a server that Tailrace's engine is not part of",
        fix="make the session with tr.session(), which is a classic one, and leave SPARK_REMOTE unset",
    )
