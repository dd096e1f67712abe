"""Checkpoints that a query cannot continue, or cannot write."""

import re
from collections.abc import Mapping

from tailrace.conditions.condition import Condition
from tailrace.errors import (
    CheckpointForeign,
    CheckpointFormatOld,
    CheckpointOutgrown,
    CheckpointUnwritable,
    counted,
)

WITH_FRESH_CHECKPOINT = "with a fresh checkpoint: --checkpoint DIR"
"""The end of a fix that the old checkpoint rules out."""
CHECKPOINT_FOREIGN = Condition(
    error=CheckpointForeign,
    what="the checkpoint {location} belongs to {owner}",
    why="continuing from its offsets would skip or repeat records of {query!r}",
    fix="give this query its own: --checkpoint DIR; or delete the folder if its progress is not needed",
)
"""Found before a start; Spark does not report it."""

CHECKPOINT_FORMAT_OLD = Condition(
    error=CheckpointFormatOld,
    spark=("STREAMING_REAL_TIME_MODE.CHECKPOINT_FORMAT_V1_NOT_SUPPORTED",),
    what="{checkpoint} has format 1, which real time cannot continue",
    why="Spark's micro-batch default writes format 1; Tailrace writes format 2 in both modes",
    fix="use a fresh checkpoint for real time: --checkpoint DIR",
    only_realtime=True,
    defaults={"checkpoint": "the checkpoint"},
)


def _source_counts(match: re.Match[str]) -> Mapping[str, str]:
    return {name: counted(int(match[name]), "source") for name in ("saved", "current")}


SOURCES_CHANGED = Condition(
    error=CheckpointOutgrown,
    pattern=r"\[(?P<saved>\d+)\] sources in the checkpoint offsets and now there are \[(?P<current>\d+)\]",
    what="the checkpoint has {saved} and the query has {current}",
    why="a checkpoint keeps offsets by position, so you can neither add nor remove a source",
    fix="undo that change, or use a fresh checkpoint for the changed query: --checkpoint DIR",
    details=_source_counts,
)
STATE_CHANGED = Condition(
    error=CheckpointOutgrown,
    pattern=r"STATE_STORE_\w*SCHEMA\w*|STATEFUL_OPERATOR\w*NOT_MATCH",
    what="the state in the checkpoint does not fit the query",
    why="its aggregates or keys have changed, or lineage was turned on or off, which is part of the state",
    fix=SOURCES_CHANGED.fix,
)
DISK_FULL = Condition(
    error=CheckpointUnwritable,
    pattern=r"No space left on device|Disk quota exceeded",
    what="query {query!r} stopped because the disk is full",
    why="it could not save its progress; what it saved before is intact",
    fix="free some space and start it again: it continues from its last checkpoint",
)
