"""Loads the user's functions as Spark's worker does, once per process."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

_MAX_CACHED = 16
"""Most functions that stay loaded in a worker."""

_ACCUMULATOR = b"_deserialize_accumulator"
"""Part of the pickle of an accumulator. It belongs to one task, so a function with one is not cached."""


class CachingLoader:
    """Loads the pickled functions of a call like Spark's worker, but each only once per process.

    Args:
        index: The position of the call in its operator: a function in two calls is loaded twice, as in Spark.
    """

    def __init__(self, index: int = 0) -> None:
        self._index = index
        self.loaded: list[Any] = []
        """The objects loaded so far."""

    @property
    def function(self) -> Any:
        """The user's function that was loaded last: the outermost one of a call."""
        return self.loaded[-1][0]

    def loads(self, pickled: Any) -> Any:
        """Return the object of a pickle, from the cache if possible."""
        self.loaded.append(self._load(bytes(pickled)))
        return self.loaded[-1]

    def _load(self, pickled: bytes) -> Any:
        from pyspark import worker
        from pyspark.serializers import CPickleSerializer

        # In Spark's module, because each command brings its own copy of this one.
        cache: OrderedDict[Any, Any] = vars(worker).setdefault("_tailrace_functions", OrderedDict())
        key = (self._index, len(self.loaded), hashlib.sha256(pickled).digest())
        if key in cache:
            cache.move_to_end(key)
            return cache[key]
        loaded = CPickleSerializer().loads(pickled)  # type: ignore[no-untyped-call]
        if _ACCUMULATOR not in pickled:
            cache[key] = loaded
            while len(cache) > _MAX_CACHED:
                cache.popitem(last=False)
        return loaded


def udf_info(function: Mapping[str, Any], positions: Mapping[int, int]) -> Any:
    """Return a function of a spec as Spark's worker describes it, with its arguments at these positions."""
    return SimpleNamespace(
        udfs=[bytes(command) for command in function["commands"]],
        args=[positions[number] for number in function["args"]],
        kwargs={key: positions[number] for key, number in function["kwargs"].items()},
        result_id=function["id"],
    )
