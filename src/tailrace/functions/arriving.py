"""Batches as they come to a worker."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Arriving:
    """Batches as they come. Where they cannot be read any more, no function is to blame."""

    def __init__(self, batches: Iterator["pa.RecordBatch"]) -> None:
        self._batches = batches
        self._broken: Exception | None = None

    def next(self) -> "pa.RecordBatch | None":
        """The next one, as soon as it is there; None after the last."""
        try:
            return next(self._batches, None)
        except Exception as broken:
            self._broken = broken
            raise

    def raise_if_broken(self) -> None:
        """Raise what kept them from being read, if anything did."""
        if self._broken is not None:
            raise self._broken
