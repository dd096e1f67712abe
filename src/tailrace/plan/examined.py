"""What Spark would do with a query, as plain data."""

from dataclasses import dataclass

from tailrace.plan.operator import Call, Operator
from tailrace.plan.refusal import Refusal


@dataclass(frozen=True)
class Examined:
    """What Spark would do with a query."""

    plan: Operator | None
    """None if Spark cannot plan it."""
    refusals: tuple[Refusal, ...]
    tasks: tuple[str, ...] = ()
    """The partition that each source task would read, in the order in which tasks get slots."""
    windows_s: tuple[float, ...] = ()
    """The lengths of its time windows."""
    calls: tuple[Call, ...] = ()
    """The user's DataFrame calls with a known line, the last one first."""
    pivots: bool = False
    """Whether it pivots."""
    microbatch: bool = True
    """Whether Spark accepts it in micro-batch."""
