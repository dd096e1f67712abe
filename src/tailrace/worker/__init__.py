"""The worker code of the engine: it runs the user's functions inside Spark's Python workers."""

from tailrace.worker.pickled_worker import pickled_worker

__all__ = ["pickled_worker"]
