"""The test kit: run a pipeline on rows and get rows back, in batch, in micro-batches and in real time.

A private Kafka broker and a Spark session are started at first use, shared by all tests of the process, and gone when
it ends. A test sees neither::

    from tailrace.testing import run

    def test_large_payments_are_blocked(every_mode):
        out = run(pipeline, [{"id": 1, "amount": 9000.0}], mode=every_mode)
        assert out.rows == [{"id": 1, "decision": "block"}]

The fixture ``every_mode`` comes with the package: pytest finds it by itself.
"""

from typing import TYPE_CHECKING, Any

from tailrace.testing.event_time import at
from tailrace.testing.output import Lineage, Output, OutputRecord
from tailrace.testing.rows import CHECKPOINT, MODES, Record

if TYPE_CHECKING:
    from tailrace.testing.runner import require_equal_modes, run

__all__ = [
    "CHECKPOINT",
    "MODES",
    "Lineage",
    "Output",
    "OutputRecord",
    "Record",
    "at",
    "require_equal_modes",
    "run",
]


def __getattr__(name: str) -> Any:
    # Imported at first use: pytest loads this package in every run, also where no test needs Spark.
    if name not in ("require_equal_modes", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("tailrace.testing.runner"), name)


def __dir__() -> list[str]:
    return __all__
