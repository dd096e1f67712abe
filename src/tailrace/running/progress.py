"""The batches that a running query has completed, as Spark reports them."""

import time
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.running.ending import Ending

_NOTE_EVERY_S = 0.2


class Progress:
    """Remembers the batches of a query; Spark keeps only the last hundred.

    Args:
        query: The query.
        ending: How it ends: after its end nothing new is asked for.
    """

    def __init__(self, query: StreamingQuery, ending: Ending) -> None:
        self._query = query
        self._ending = ending
        self._rows: dict[int, int] = {}
        self._noted_at = float("-inf")
        self._is_complete = False

    @property
    def batches(self) -> int:
        """How many batches it has completed."""
        return len(self._rows)

    @property
    def input_rows(self) -> int:
        """How many records they have read."""
        return sum(self._rows.values())

    def note_sometimes(self) -> None:
        """Note what is new, if the last time is a while ago: Spark's progress is long."""
        if time.monotonic() - self._noted_at >= _NOTE_EVERY_S:
            self.note()

    def note(self) -> None:
        """Note what is new."""
        if self._is_complete:
            return
        # Before the progress is read. Without control Spark's answer comes before the last batch is reported.
        has_ended = self._ending.control is not None and self._ending.has_ended()
        for progress in self._query.recentProgress:
            batch: dict[str, Any] = dict(progress) if isinstance(progress, dict) else progress.__dict__
            number = batch.get("batchId", batch.get("_batchId"))
            rows = batch.get("numInputRows", batch.get("_numInputRows", 0))
            if number is not None:
                self._rows[int(number)] = int(rows or 0)
        self._noted_at = time.monotonic()
        self._is_complete = has_ended
