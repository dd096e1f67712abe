"""What Spark would do with a query, as plain data."""

from dataclasses import dataclass

from tailrace.plan.operator import Call, Operator
from tailrace.plan.refusal import Refusal


@dataclass(frozen=True)
class Examined:
    """What Spark would do with a query."""

    plan: Operator | None
    """None where no plan can be made of it."""
    refusals: tuple[Refusal, ...]
    tasks: tuple[str, ...] = ()
    """The partition that each task of the sources would read, in the order in which tasks get slots."""
    windows_s: tuple[float, ...] = ()
    """How long its time windows are."""
    calls: tuple[Call, ...] = ()
    """The user's DataFrame calls whose lines are known, the last one first."""
    pivots: bool = False
    """Whether it pivots."""
    microbatch: bool = True
    """Whether Spark accepts it in micro-batch."""
