"""The operators of a physical plan, as plain data."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """A node of a physical plan."""

    name: str
    partitions: int | None
    """For a shuffle: the number of tasks that read it."""
    children: tuple["Operator", ...]
    refused: bool = False
    """Whether Spark refuses to run it in real time."""
    implied: bool = False
    """Whether Spark added it for another operator, such as a sort below a window function."""
    fixed: bool = False
    """For a shuffle: whether the query itself sets the number of tasks, not a setting."""
    bounded: bool = True
    """For an operator with state: whether the watermark removes it."""
    functions: tuple[str, ...] = ()
    """The names of the Python functions that it calls."""
    path: str = ""
    """How the engine sends rows to them; empty if Spark does."""
    call: str = ""
    """The DataFrame method that added it, if known."""
    line: str = ""
    """The line of that call, as ``file:line``."""

    def walk(self) -> Iterator["Operator"]:
        """Yield this node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Call:
    """A DataFrame method that the user called, and its line."""

    call: str
    line: str
