"""The Python half as bytes, for workers that need not have Tailrace."""

import functools

from pyspark import cloudpickle

import tailrace.worker
from tailrace.worker.carried import function


@functools.cache
def pickled_half() -> bytes:
    """A callable, pickled by value: it makes a function for Spark's worker of a description of the user's."""
    cloudpickle.register_pickle_by_value(tailrace.worker)  # type: ignore[no-untyped-call]
    try:
        return bytes(cloudpickle.dumps(function, protocol=4))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(tailrace.worker)  # type: ignore[no-untyped-call]
