"""Real-time PySpark on Kafka: run a DataFrame function in real time or in micro-batches, check it and measure it.

Importing this starts nothing and imports no Spark; what needs Spark is imported when it is first used.
"""

from typing import TYPE_CHECKING, Any

from tailrace.errors import TailraceError
from tailrace.pipeline import KafkaSink, KafkaSource, Mode, Pipeline
from tailrace.version import VERSION

if TYPE_CHECKING:
    from tailrace.prepare.check import check
    from tailrace.running.run import run
    from tailrace.running.start import start
    from tailrace.spark_session import session

__version__ = VERSION

__all__ = [
    "KafkaSink",
    "KafkaSource",
    "Mode",
    "Pipeline",
    "TailraceError",
    "__version__",
    "check",
    "run",
    "session",
    "start",
]

_NEEDS_SPARK = {
    "check": "tailrace.prepare.check",
    "run": "tailrace.running.run",
    "session": "tailrace.spark_session",
    "start": "tailrace.running.start",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_NEEDS_SPARK[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
