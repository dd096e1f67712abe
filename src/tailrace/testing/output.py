"""The output of a pipeline under test."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tailrace.frames.names import Header


@dataclass(frozen=True)
class Lineage:
    """The origin of an output record according to its headers; None for a missing header."""

    topic: str | None
    partition: int | None
    offset: int | None
    event_time: datetime | None


@dataclass(frozen=True)
class OutputRecord:
    """A record that the pipeline wrote."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def row(self) -> Any:
        """The value parsed as JSON."""
        return None if self.value is None else json.loads(self.value)

    def header(self, name: str) -> bytes | None:
        """Return the last header of a name: if a record passed several pipelines, the last one counts."""
        return next((value for each, value in reversed(self.headers) if each == name), None)

    @property
    def lineage(self) -> Lineage:
        """Its origin."""
        topic, partition, offset, moment = (
            self.header(name) for name in (Header.TOPIC, Header.PARTITION, Header.OFFSET, Header.EVENT_TIME)
        )
        return Lineage(
            topic.decode() if topic is not None else None,
            int(partition) if partition is not None else None,
            int(offset) if offset is not None else None,
            datetime.fromtimestamp(int(moment) / 1000, UTC) if moment is not None else None,
        )


@dataclass(frozen=True)
class Output:
    """Everything that one run wrote, in the order of each topic."""

    records: Sequence[OutputRecord]
    dead_letters: Sequence[OutputRecord]
    malformed: Mapping[str, int]
    """Malformed records by reason."""

    @property
    def rows(self) -> list[Any]:
        """The values of all records, parsed as JSON."""
        return [record.row for record in self.records]

    def last(self, *by: str) -> dict[Any, Any]:
        """Return the last row for each value of the columns ``by``: the final state of a stateful pipeline.

        A pipeline with state writes a row for every change, and how many there are depends on the mode.
        """
        last: dict[Any, Any] = {}
        for row in self.rows:
            if not isinstance(row, dict):
                raise TypeError(f"the output {row!r} is not a JSON object, so it has no columns {', '.join(by)}")
            values = tuple(_hashable(row.get(column)) for column in by)
            last[values[0] if len(by) == 1 else values] = row
        return last


def _hashable(value: Any) -> Any:
    """Return a value as a dictionary key; nested values, such as a window, as JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
