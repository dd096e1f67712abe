"""What Spark refuses about a query."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Something that Spark would refuse to start or to continue."""

    condition: str
    """Spark's name for the error; empty if it has none."""
    message: str
    parameters: Mapping[str, str]
    call: str = ""
    line: str = ""
