"""What a pipeline can guarantee about its outputs after a crash."""

from dataclasses import dataclass, field

EFFECTIVELY_ONCE = "effectively-once"
AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class Obstacle:
    """Something in the plan of a pipeline's function that a guarantee cannot hold with.

    Attributes:
        kind: ``operator``: its rows do not each come from one record, in order. ``foreign_stream``: a stream that is
            not a source of the pipeline. ``varying``: a value that is another one each time decides something.
            ``table_order``: a static table has its rows in another order each time. ``varying_function``: a Python
            function is declared non-deterministic, which alone prevents nothing.
        name: The operator, what is decided, or the function.
        cause: The function whose value is another one each time.
        call: The DataFrame method that added it, if known.
        line: The line of that call, as ``file:line``.
    """

    kind: str
    name: str
    cause: str = ""
    call: str = ""
    line: str = ""


@dataclass(frozen=True)
class PickledFunction:
    """A Python function in a plan."""

    name: str
    command: bytes = field(repr=False)
    """The function as Spark sends it to its workers."""


@dataclass(frozen=True)
class FunctionPlan:
    """The plan of a pipeline's function.

    Attributes:
        obstacles: What may prevent a guarantee, in the order of the data.
        text: The plan as text, without what differs between two processes.
        unstable: A part that cannot be written as text, in words; empty if there is none.
        functions: Its Python functions, which the text names by number.
    """

    obstacles: tuple[Obstacle, ...]
    text: str = field(repr=False)
    unstable: str
    functions: tuple[PickledFunction, ...]


@dataclass(frozen=True)
class DeliveryPlan:
    """What holds after a crash.

    Attributes:
        keeps_progress: Whether every row can be traced to its record, so that progress can be noted within a batch.
        effectively_once: Whether a start after a crash leaves out the outputs that exist already.
        reason: Why not; empty if it does.
        fingerprint: A hash of what decides whether, how often and where rows are written; None if there is none.
        fix: What to do for effectively-once delivery.
        where: The user's file, line and call, if they are known.
        surprises: Whether a user would expect effectively-once delivery here, so that a start has to say otherwise.
    """

    keeps_progress: bool
    effectively_once: bool
    reason: str = ""
    fingerprint: str | None = None
    fix: str = ""
    where: str = ""
    surprises: bool = False

    @property
    def in_words(self) -> str:
        """The guarantee as a sentence, with the reason if it is the weaker one."""
        if self.effectively_once:
            return EFFECTIVELY_ONCE
        return f"{AT_LEAST_ONCE}: {self.reason}" + (f" ({self.where})" if self.where else "")
