"""Producer to consumer with no engine between them: what nothing on this machine can beat."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.bench.lane import Announce, Cell
from tailrace.bench.work import Work


@dataclass(frozen=True)
class Floor:
    """The bare broker: one topic, one hop. An engine's way has two."""

    name: str = "floor"
    title: str = "Kafka alone"
    works: frozenset[Work] = frozenset(Work)
    merges: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Nothing to set."""
        return {}

    def prepare(self, announce: Announce) -> None:
        """Nothing to prepare."""

    def versions(self) -> Mapping[str, str]:
        """No engine."""
        return {}

    def command(self, cell: Cell) -> None:
        """No process."""


LANES = (Floor(),)
