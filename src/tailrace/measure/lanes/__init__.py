"""All lanes by name.

To add one: a row in the table of ``spark.py``; or for another engine its program and lock files in
``programs/<engine>/``, a class with the members of :class:`~tailrace.measure.lane.Lane` and an instance of it in
``ENGINE_LANES`` of ``engines.py``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.errors import OptionRefused
from tailrace.measure.lane import Announce, Cell, Lane
from tailrace.measure.lanes.engines import ENGINE_LANES
from tailrace.measure.lanes.spark import SPARK_LANES
from tailrace.measure.works import Work


@dataclass(frozen=True)
class Floor:
    """Kafka alone: producer, one topic, consumer. A record of any other lane passes two topics."""

    name: str = "floor"
    title: str = "Kafka alone"
    works: frozenset[Work] = frozenset(Work)
    is_baseline: bool = True
    trigger: None = None
    merges: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Return no settings."""
        return {}

    def prepare(self, announce: Announce) -> None:
        """Do nothing."""

    def versions(self) -> Mapping[str, str]:
        """Return no engine."""
        return {}

    def command(self, cell: Cell) -> None:
        """Return no process."""


def all_lanes() -> dict[str, Lane]:
    """Return every lane, in the order of ``tailrace bench --list-lanes``."""
    lanes: tuple[Lane, ...] = (Floor(), *SPARK_LANES, *ENGINE_LANES)
    return {lane.name: lane for lane in lanes}


def lanes_named(names: Iterable[str]) -> list[Lane]:
    """Return the lanes of these names, each once.

    Raises:
        OptionRefused: There is no lane of such a name.
    """
    known = all_lanes()
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in known:
            raise OptionRefused(f"there is no lane {name!r}", fix=f"use one or more of: {', '.join(known)}")
    return [known[name] for name in chosen]
