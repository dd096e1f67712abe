"""What the lanes of a benchmark compute: the same in every engine, one result for each record."""

from enum import StrEnum


class Work(StrEnum):
    """A kind of work.

    Every input is ``{"id", "key", "amount", "sent_ns", "pad"}``, keyed by ``key``. Every output carries the ``id`` and
    the ``sent_ns`` of the record that caused it, so that any consumer can time it.
    """

    STATELESS = "stateless"
    """Parse, filter, compute one column: ``doubled`` is twice the amount."""
    AGGREGATE = "aggregate"
    """A running ``count`` and ``total`` of the amounts per key, one update per record."""
    PYTHON = "python"
    """Like stateless, but ``score`` is made by a function in Python."""
    WINDOW = "window"
    """A ``count`` per key and minute of event time, one update per record."""
    DEDUPE = "dedupe"
    """Each ``id`` once."""
    JOIN = "join"
    """A ``level`` for each key from a static table of a thousand rows."""

    @property
    def merges(self) -> bool:
        """Whether an engine that works in batches gives one update where another gives many."""
        return self in (Work.AGGREGATE, Work.WINDOW)
