"""The streaming sources and the writer of a query."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StreamRead:
    """A streaming source in a query, with its options."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    """They may contain passwords."""


@dataclass(frozen=True)
class WriterSettings:
    """The settings of a ``DataStreamWriter``."""

    format: str
    output_mode: str
    options: Mapping[str, str] = field(repr=False)
    """By lower-case name, as Spark compares them. They may contain passwords."""
