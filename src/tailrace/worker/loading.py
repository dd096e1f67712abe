"""The user's functions, loaded as Spark's worker does it."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

_KEPT = 16
"""So many functions stay loaded in a worker, from one batch to the next."""

_ACCUMULATOR = b"_deserialize_accumulator"
"""Names what makes an accumulator: it belongs to a task, and so does a function that has one."""


class Remembering:
    """Loads the pickled functions of a call as Spark's worker does, but each only once per process.

    Args:
        place: Which of its operator's calls it is: the same function in two of them is two objects, as in Spark.
    """

    def __init__(self, place: int = 0) -> None:
        self._place = place
        self.loaded: list[Any] = []
        """What it has loaded so far."""

    @property
    def function(self) -> Any:
        """The user's function that it loaded last: the outermost one of a call."""
        return self.loaded[-1][0]

    def loads(self, pickled: Any) -> Any:
        """The object; the same as before where its bytes are, and its place."""
        self.loaded.append(self._remembered(bytes(pickled)))
        return self.loaded[-1]

    def _remembered(self, pickled: bytes) -> Any:
        from pyspark import worker
        from pyspark.serializers import CPickleSerializer

        kept: OrderedDict[Any, Any] = vars(worker).setdefault("_tailrace_functions", OrderedDict())
        key = (self._place, len(self.loaded), hashlib.sha256(pickled).digest())
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        loaded = CPickleSerializer().loads(pickled)  # type: ignore[no-untyped-call]
        if _ACCUMULATOR not in pickled:
            kept[key] = loaded
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return loaded


def udf_info(each: Mapping[str, Any], places: Mapping[int, int]) -> Any:
    """A function as Spark's worker is told of it, its arguments at other places."""
    return SimpleNamespace(
        udfs=[bytes(command) for command in each["commands"]],
        args=[places[at] for at in each["args"]],
        kwargs={key: places[at] for key, at in each["kwargs"].items()},
        result_id=each["id"],
    )
