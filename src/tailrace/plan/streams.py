"""The ends of a query: its streaming sources and its writer."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StreamRead:
    """A streaming source in a query, with the options it was made with."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    """Passwords may be among them."""


@dataclass(frozen=True)
class WriterSettings:
    """What a ``DataStreamWriter`` was told."""

    format: str
    output_mode: str
    options: Mapping[str, str] = field(repr=False)
    """By lower-case name, as Spark compares them. Passwords may be among them."""
