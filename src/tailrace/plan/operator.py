"""The operators of a physical plan, as plain data."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """A node of a physical plan."""

    name: str
    partitions: int | None
    """For an exchange of rows between tasks: how many tasks read it."""
    children: tuple["Operator", ...]
    refused: bool = False
    """Whether Spark refuses to run it in real time."""
    implied: bool = False
    """Whether Spark added it for what another operator requires, such as a sort below a window function."""
    fixed: bool = False
    """For an exchange: whether the query itself says how many tasks read it, instead of a setting."""
    bounded: bool = True
    """For an operator with state: whether the watermark removes it."""
    functions: tuple[str, ...] = ()
    """The names of the Python functions that it calls."""
    path: str = ""
    """How rows go to them, where the engine carries them."""
    call: str = ""
    """The DataFrame method that made it, where that is known."""
    line: str = ""
    """Where the user called that, as ``file:line``."""

    def walk(self) -> Iterator["Operator"]:
        """This node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Call:
    """A DataFrame method that the user called, and where."""

    call: str
    line: str
