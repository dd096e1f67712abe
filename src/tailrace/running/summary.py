"""What a query did, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.engine import FunctionCost
from tailrace.running.ending import RepeatReason


@dataclass(frozen=True)
class RunSummary:
    """What a query did between its start and its end, according to its completed batches."""

    name: str
    mode: str
    seconds: float
    batches: int
    input_rows: int
    checkpoint: str
    malformed: Mapping[str, int]
    """Malformed records by reason, in the tasks that have ended; a record that is read again counts again."""
    why_microbatch: tuple[Mapping[str, str], ...] = ()
    """With ``mode="auto"``: why it runs in micro-batch: the errors in real time."""
    python: Mapping[str, FunctionCost] = field(default_factory=dict)
    """What each Python function cost, if the engine ran it."""
    uncommitted_rows: int = 0
    """Records that are not saved: after the query has stopped, those that the next start processes again."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """In real time, results that Kafka refused and that are dead letters, by reason; counted like ``malformed``."""
    repeats: RepeatReason | str = ""
    """Why the next start processes records again; empty if the last batch is saved, so that nothing is repeated."""
    delivery: str = ""
    """``effectively-once`` if the next start leaves out the results that exist, otherwise ``at-least-once``."""
