"""Slots, settings, and everything else that Spark refuses or reports."""

import re
from collections.abc import Mapping
from dataclasses import replace

from tailrace.conditions.condition import Condition
from tailrace.errors import ExecutorLost, QueryFailed, QueryRefused, SettingRefused, SlotsMissing, counted


def _slots(match: re.Match[str]) -> Mapping[str, str]:
    return {"slots": counted(int(match["required"]), "task slot")}


SLOTS_MISSING = Condition(
    error=SlotsMissing,
    spark=("CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT",),
    pattern=(
        r"(?s)CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT.*?needs (?P<required>\d+) concurrent task slots"
        r".*?only (?P<available>\d+)"
    ),
    what="real time needs {slots} and Spark has {available}{taken}",
    why="all tasks of all stages run at the same time",
    fix="use --tasks N, --master 'local[N]' with a larger N, fewer --shuffle-partitions, or stop other queries",
    only_realtime=True,
    defaults={"taken": " free"},
    details=_slots,
)
SLOTS_MISSING_UNCOUNTED = replace(
    SLOTS_MISSING,
    pattern=SLOTS_MISSING.spark[0],
    what="real time needs more task slots than Spark has free",
    details=None,
)
SETTING_REFUSED = Condition(
    error=SettingRefused,
    spark=("STREAMING_REAL_TIME_MODE.SQL_CONFIGURATION_NOT_SUPPORTED",),
    pattern=r"SQL_CONFIGURATION_NOT_SUPPORTED(?:.*?(?P<setting>spark(?:\.\w+)+))?",
    what="{setting}{value} cannot work in real time",
    why="{cause}",
    fix="unset {setting}",
    only_realtime=True,
    defaults={"setting": "a Spark setting", "value": ""},
)
EXECUTOR_LOST = Condition(
    error=ExecutorLost,
    pattern=r"ExecutorLostFailure \(executor (?P<executor>[^\s)]+)[^)]*\)(?: Reason: (?P<reason>[^\r\n]*))?",
    what="query {query!r} lost an executor of its cluster",
    why="executor {executor} ended: {reason}",
    fix=(
        "start the query again: it continues from its last checkpoint. If executors end again, read their logs; exit "
        "code 137 often means too little memory (--conf spark.executor.memory=4g)"
    ),
    defaults={"reason": "Spark names no reason"},
)
REALTIME_REFUSED = Condition(
    error=QueryRefused,
    pattern=r"STREAMING_REAL_TIME_MODE\.",
    what="query {query!r} cannot run in real time",
    why="{cause}",
    fix="change what Spark names; --verbose shows its whole message",
    only_realtime=True,
)
UNKNOWN = Condition(
    error=QueryFailed,
    pattern=r"\A",
    what="query {query!r} failed",
    why="{cause}",
    fix="run again with --verbose to see the whole stack trace",
)
