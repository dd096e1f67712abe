"""The worker code as bytes, for machines without Tailrace."""

import functools

from pyspark import cloudpickle

import tailrace.worker
from tailrace.worker.run_functions import worker_function


@functools.cache
def pickled_worker() -> bytes:
    """Return the pickle of ``worker_function``, with the code of this package by value."""
    cloudpickle.register_pickle_by_value(tailrace.worker)  # type: ignore[no-untyped-call]
    try:
        return bytes(cloudpickle.dumps(worker_function, protocol=4))  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(tailrace.worker)  # type: ignore[no-untyped-call]
