"""The lanes that run Spark: one table.

A lane with Tailrace is an ordinary pipeline, lineage and dead letters included. A lane on stock Spark has Spark's own
defaults and only the settings that the table names.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.measure.lane import Announce, Cell, Command, Trigger
from tailrace.measure.python_work import FUNCTIONS
from tailrace.measure.spark_process import SparkSettings, spark_command
from tailrace.measure.works import Work
from tailrace.spark_session import write_spark_archive
from tailrace.toolchain import ArchiveNotWrittenError, ensure_engine, ensure_jars, ensure_java, pyspark_version

_SPARK_SHUFFLE = {"spark.shuffle.manager.incremental": "streaming"}
"""The shuffle that comes with Spark, instead of the engine's."""
_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}
"""Without these Spark refuses to start a query with state in real time."""
_UNCHECKED = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
"""Without this Spark refuses a Python function in real time."""
_FIVE = {
    **_UNCHECKED,
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
    "spark.sql.execution.python.udf.buffer.size": "4",
}
"""With these Spark sends each row to Python at once. On its defaults a row waits for the end of the batch."""


@dataclass(frozen=True)
class SparkLane:
    """A lane whose process is a Spark."""

    name: str
    title: str
    works: frozenset[Work]
    runs: SparkSettings
    settings: Mapping[str, str] = field(default_factory=dict)
    is_baseline: bool = False

    @property
    def trigger(self) -> Trigger:
        """How Spark runs it."""
        return self.runs.trigger

    @property
    def merges(self) -> bool:
        """Whether it emits one update of a key for all records of a batch."""
        return self.trigger is Trigger.MICROBATCH

    def prepare(self, announce: Announce) -> None:
        """Obtain Java and the jars, and for Tailrace the engine and the class archive."""
        java = ensure_java(announce)
        jars = ensure_jars(java, ["connector"], announce)["connector"]
        if self.runs.tailrace:
            ensure_engine(java, jars, announce)
            # Now: the first session without an archive writes one while it runs, which the benchmark would measure.
            with contextlib.suppress(ArchiveNotWrittenError):
                write_spark_archive(announce)

    def versions(self) -> Mapping[str, str]:
        """Return Spark's version."""
        return {"pyspark": pyspark_version()}

    def command(self, cell: Cell) -> Command:
        """Return the process of one run."""
        return spark_command(self.runs, cell)


def _lane(
    name: str,
    title: str,
    trigger: Trigger,
    works: frozenset[Work],
    conf: Mapping[str, str] | None = None,
    *,
    tailrace: bool = True,
) -> SparkLane:
    conf = conf or {}
    return SparkLane(name, title, works, SparkSettings(tailrace=tailrace, trigger=trigger, conf=conf), conf)


_SHARED = 4
"""Tasks for all partitions, however many there are."""
_ALL = frozenset(Work)
_PYTHON = frozenset({Work.PYTHON})
_SHUFFLED = frozenset({Work.AGGREGATE, Work.WINDOW, Work.DEDUPE})

SPARK_LANES = (
    _lane("microbatch", "micro-batch", Trigger.MICROBATCH, _ALL),
    _lane("microbatch-stock", "micro-batch, stock Spark", Trigger.MICROBATCH, _ALL, tailrace=False),
    # The old continuous trigger supports neither state nor joins.
    _lane("continuous", "continuous, stock Spark", Trigger.CONTINUOUS, frozenset({Work.STATELESS}), tailrace=False),
    _lane("realtime-stock", "real time, stock Spark", Trigger.REALTIME, _ALL - _PYTHON, _STATE, tailrace=False),
    _lane("realtime", "real time", Trigger.REALTIME, _ALL - _PYTHON),
    SparkLane(
        "realtime-shared",
        f"real time, {_SHARED} tasks",
        _ALL - _PYTHON,
        SparkSettings(tailrace=True, trigger=Trigger.REALTIME, tasks=_SHARED),
        {"tasks": str(_SHARED)},
    ),
    SparkLane(
        "realtime-at-least-once",
        "real time, at-least-once",
        _ALL - _PYTHON,
        SparkSettings(tailrace=True, trigger=Trigger.REALTIME, delivery="at-least-once"),
        {"delivery": "at-least-once"},
    ),
    SparkLane(
        "realtime-spark-sink",
        "real time, Spark's own sink",
        _ALL - _PYTHON,
        SparkSettings(tailrace=True, trigger=Trigger.REALTIME, spark_sink=True),
        {"sink": "Spark's own"},
    ),
    _lane("realtime-timer", "real time, Spark's own shuffle", Trigger.REALTIME, _SHUFFLED, _SPARK_SHUFFLE),
    *(
        SparkLane(
            f"realtime-{name}",
            f"real time, {function.title}",
            _PYTHON,
            SparkSettings(tailrace=True, trigger=Trigger.REALTIME, function=name),
        )
        for name, function in FUNCTIONS.items()
    ),
    SparkLane(
        "python-stock",
        "Python function, stock Spark",
        _PYTHON,
        # A row waits for the end of the batch, so the batch is short.
        SparkSettings(tailrace=False, trigger=Trigger.REALTIME, conf=_UNCHECKED, checkpoint_every_s=10),
        {**_UNCHECKED, "trigger": "real time, 10 seconds"},
    ),
    _lane("python-five", "Python function, five settings", Trigger.REALTIME, _PYTHON, _FIVE, tailrace=False),
)
