"""What Spark refuses about a query."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Something that Spark would refuse to start, or to go on with."""

    condition: str
    """Spark's name for the error; empty where it has none."""
    message: str
    parameters: Mapping[str, str]
    call: str = ""
    line: str = ""
