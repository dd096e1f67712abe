"""Every setting that Tailrace applies, with its reason and its measured effect.

The settings are soft: Tailrace sets only what the user did not set. A user's value that cannot work is refused with the
reason, never replaced. ``docs/reference/settings.md`` is generated from this table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """Where a setting takes effect."""

    CONTEXT = "context"
    """Fixed when the Spark context starts."""
    QUERY = "query"
    """On the query's own session, in both modes: a checkpoint then serves either."""
    REALTIME = "realtime query"
    """On the session of a real-time query alone."""


@dataclass(frozen=True)
class Setting:
    """One soft default."""

    key: str
    value: str
    scope: Scope
    reason: str
    effect: str
    """What was measured with and without it, or why there is nothing to measure."""
    local_only: bool = False
    """Applied only where driver, executors and checkpoint are on this machine."""


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "spark.shuffle.streaming.networkBufferMaxWaitTimeMs",
        "1",
        Scope.CONTEXT,
        "A row that crosses the streaming shuffle waits for its buffer to fill or for this timer, which is 50 ms by "
        "default. 0 would make the flush thread spin.",
        "keyed aggregate, 500 events/s, 2 cores, lanes of one run: median p50 33.8 to 4.6 ms "
        "(benchmarks/results/keyed-aggregate.json)",
    ),
    Setting(
        "spark.shuffle.manager.incremental",
        "org.apache.spark.shuffle.streaming.tailrace.PromptShuffleManager",
        Scope.CONTEXT,
        "Spark's streaming shuffle keeps a row until its timer fires. The engine's shuffle sends a row at once if "
        "no row was sent in the last half millisecond; rows that come closer together share a message.",
        "keyed aggregate, 2,000 events/s, 2 cores, warm, three pairs of runs: p50 2.48, 2.03, 2.71 ms against 2.50, "
        "2.44, 3.51 ms with Spark's own (benchmarks/results/engines-warm)",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        Scope.CONTEXT,
        "Rows go to Python workers and back through a Unix domain socket instead of a TCP socket.",
        "one of the five settings of the benchmark's lane python-five; not measured by itself",
    ),
    Setting(
        "spark.ui.liveUpdate.period",
        "0ms",
        Scope.CONTEXT,
        "Spark reports the start of a task at most every 100 ms, and only with the next event; in real time the next "
        "event may be minutes away. Tailrace confirms a real-time start when its tasks run.",
        "16 bounded real-time runs of the test kit, in turn: mean 4.8 to 3.2 s, longest 15.1 to 3.7 s; none on latency",
    ),
    Setting(
        "spark.ui.showConsoleProgress",
        "false",
        Scope.CONTEXT,
        "A real-time batch lasts minutes: a progress bar shows nothing useful and overwrites the terminal.",
        "none on latency",
    ),
    Setting(
        "spark.driver.host",
        "127.0.0.1",
        Scope.CONTEXT,
        "Spark listens only on this machine, and no DNS lookup can delay the start.",
        "none on latency",
        local_only=True,
    ),
    Setting(
        "spark.driver.bindAddress",
        "127.0.0.1",
        Scope.CONTEXT,
        "The same as for spark.driver.host.",
        "none on latency",
        local_only=True,
    ),
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        Scope.QUERY,
        "PySpark's wheel has no native Hadoop library, so Spark's default manager runs readlink and chmod as processes "
        "for every checkpoint file. Only where the checkpoint is on a local disk.",
        "keyed aggregate: 42 to 12 forks per checkpoint, pause about 350 to 215 ms; micro-batch at trigger 0 and "
        "2,000 events/s: p50 151 to 80 ms, p99 252 to 148 ms",
        local_only=True,
    ),
    Setting(
        "spark.sql.streaming.stateStore.checkpointFormatVersion",
        "2",
        Scope.QUERY,
        "Real time refuses a checkpoint of format 1. With 2 from the first start, either mode can take over the "
        "other's checkpoint.",
        "none on latency; without it a micro-batch checkpoint can never be continued in real time",
    ),
    Setting(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        Scope.QUERY,
        "Real time keeps state only in RocksDB; the same store in micro-batch lets the modes share a checkpoint.",
        "none on latency; required",
    ),
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        Scope.QUERY,
        "A checkpoint writes only changes instead of whole snapshots.",
        "as Spark's own default in real time, here in micro-batch too",
    ),
    Setting(
        "spark.sql.unionOutputPartitioning",
        "false",
        Scope.REALTIME,
        "A union of streams that are partitioned alike reads its inputs one after the other, so in real time the "
        "second one would never be read.",
        "not a latency setting: it keeps inputs from starving",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        Scope.REALTIME,
        "Spark switches it off for a real-time query in any case; off from the start, the plan that is checked is the "
        "plan that runs.",
        "none on latency",
    ),
)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
"""Soft too, but set per query: the number in its checkpoint, or the number of source tasks."""


@dataclass(frozen=True)
class UnworkableValue:
    """A value that cannot work in real time, whoever set it."""

    key: str
    bad: tuple[str, ...]
    why: str
    needs_shuffle: bool = False


UNWORKABLE: tuple[UnworkableValue, ...] = (
    UnworkableValue(
        "spark.sql.streaming.stateStore.checkpointFormatVersion",
        ("1",),
        "real time needs checkpoint format 2",
    ),
    UnworkableValue(
        "spark.sql.streaming.stateStore.providerClass",
        ("org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",),
        "real time keeps state only in RocksDB",
    ),
    UnworkableValue(
        "spark.sql.execution.sortBeforeRepartition",
        ("true",),
        "a sort waits for the end of the batch, so nothing would come out until the next checkpoint",
    ),
    UnworkableValue(
        "spark.speculation",
        ("true",),
        "Spark refuses to speculate on tasks that feed each other while they run",
        needs_shuffle=True,
    ),
    UnworkableValue(
        "spark.dynamicAllocation.enabled",
        ("true",),
        "all tasks of a real-time query run at once, so its executors must be there from the start",
        needs_shuffle=True,
    ),
)


def soft_settings(scope: Scope, *, local: bool) -> dict[str, str]:
    """The defaults of a scope.

    Args:
        scope: Which ones.
        local: Whether driver, executors and checkpoint are on this machine.
    """
    return {each.key: each.value for each in SETTINGS if each.scope is scope and (local or not each.local_only)}


def query_settings(*, realtime: bool, local: bool) -> dict[str, str]:
    """The defaults for the session of one query."""
    settings = soft_settings(Scope.QUERY, local=local)
    if realtime:
        settings |= soft_settings(Scope.REALTIME, local=local)
    return settings


def unworkable(settings: Mapping[str, str], *, shuffles: int) -> Iterator[UnworkableValue]:
    """Which of a user's settings cannot work in real time."""
    for each in UNWORKABLE:
        value = settings.get(each.key, "").lower()
        if value in (bad.lower() for bad in each.bad) and (shuffles or not each.needs_shuffle):
            yield each
