"""The Python half of the engine: the user's functions inside Spark's Python workers."""

from tailrace.worker.half import pickled_half

__all__ = ["pickled_half"]
