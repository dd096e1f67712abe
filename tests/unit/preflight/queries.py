"""Queries as plain data, for checks that need no Spark."""

from typing import Any

from tailrace.pipeline import Mode
from tailrace.plan.operator import Operator
from tailrace.plan.refusal import Refusal
from tailrace.plan.slots import Capacity, Slots
from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.preflight.query import Query


def node(name: str, *children: Operator, **more: Any) -> Operator:
    """Return a plan node."""
    return Operator(name, more.pop("partitions", None), children, **more)


def refusal(condition: str, message: str = "Spark says no", **parameters: str) -> Refusal:
    """Return something that Spark refuses."""
    return Refusal(condition, message, parameters, "select", "fraud.py:7")


def query(**changed: Any) -> Query:
    """Return a stateless query on two partitions, in a Spark with two slots: no check has a finding."""
    given: dict[str, Any] = {
        "name": "fraud",
        "mode": Mode.REALTIME,
        "interval_ms": 300_000,
        "plan": node("WriteToDataSourceV2", node("Project", node("RealTimeStreamScan"))),
        "reads": (StreamRead("kafka", {"subscribe": "payments"}),),
        "tasks": ("payments-0", "payments-1"),
        "slots": Slots((2,)),
        "capacity": Capacity(2),
        "master": "local[2]",
        "settings": {"spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1"},
        "sink": WriterSettings("kafka", "update", {"topic": "decisions"}),
    }
    return Query(**{**given, **changed})
