"""Plan a query without starting it."""

import contextlib
import functools
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from tailrace.engine.gateway import elements, tailrace_of
from tailrace.plan.examined import Examined
from tailrace.plan.operator import Call, Operator
from tailrace.plan.refusal import Refusal
from tailrace.plan.streams import StreamRead, WriterSettings

_NOT_THE_USERS = (str(Path(pyspark.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)
_recorders = 0
_recorders_lock = threading.Lock()
"""Guards the number of active recorders: the first wraps the methods, the last unwraps them."""
_wrapped: list[tuple[type, str, Callable[..., Any]]] = []


def examine(
    frame: DataFrame,
    *,
    output_mode: str = "update",
    microbatch_mode: str | None = None,
    interval_ms: int = 0,
    sink: WriterSettings | None = None,
    ask: bool = False,
    starts: Sequence[str] = (),
) -> Examined:
    """Return what Spark would do with a streaming query, without starting it.

    Args:
        frame: What is written.
        output_mode: ``append``, ``update`` or ``complete``.
        microbatch_mode: The output mode in micro-batch, if it differs.
        interval_ms: How long a real-time batch lasts; 0 means micro-batch.
        sink: The settings of the sink, if they are known.
        ask: Whether to ask the broker for the partitions of its topics; an unreachable broker delays the call.
        starts: The offsets of each source in the checkpoint; empty for a new checkpoint.
    """
    format_, options = (sink.format, dict(sink.options)) if sink is not None else (None, {})
    preflight = tailrace_of(frame.sparkSession).Preflight
    modes = output_mode.lower(), (microbatch_mode or output_mode).lower()
    result = json.loads(preflight.examine(frame._jdf, *modes, format_, options, interval_ms, ask, list(starts)))
    refusals = tuple(Refusal(**refusal) for refusal in result["refusals"])
    plan = _operator(result["plan"]) if result["plan"] is not None else None
    calls = tuple(Call(**call) for call in result["calls"])
    return Examined(
        plan,
        refusals,
        tuple(result["tasks"]),
        tuple(result["windows_s"]),
        calls,
        pivots=result["pivots"],
        microbatch=result["microbatch"],
    )


def _operator(result: Mapping[str, Any]) -> Operator:
    """Convert a plan node and its children."""
    return Operator(
        result["name"],
        result["partitions"],
        tuple(_operator(child) for child in result["children"]),
        refused=result["refused"],
        implied=result["implied"],
        fixed=result["fixed"],
        bounded=result["bounded"],
        functions=tuple(result["functions"]),
        path=result["path"],
        call=result["call"],
        line=result["line"],
    )


def stream_reads(frame: DataFrame) -> list[StreamRead]:
    """Return the streaming sources that a DataFrame reads."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    reads = []
    for leaf in elements(leaves):
        if not leaf.getClass().getSimpleName().startswith("StreamingRelation"):
            continue
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            options = dict(leaf.extraOptions().asCaseSensitiveMap())
            reads.append(StreamRead(str(leaf.sourceName()), options))
        else:
            reads.append(StreamRead(str(leaf.sourceName()), {}))
    return reads


@contextlib.contextmanager
def recorded_lines(spark: SparkSession) -> Iterator[None]:
    """Inside this block, record the user's line for every plan node that a DataFrame call adds."""
    sites = tailrace_of(spark).CallSites
    _wrap_methods(sites)
    try:
        yield
    finally:
        _unwrap_methods()
        sites.clear()


def _wrap_methods(sites: Any) -> None:
    global _recorders  # noqa: PLW0603 - PySpark's classes are the whole program's, so is the count
    with _recorders_lock:
        _recorders += 1
        if _recorders > 1:
            return
        for owner in (ClassicDataFrame, GroupedData):
            for name, method in list(vars(owner).items()):
                if callable(method) and not name.startswith("_"):
                    _wrapped.append((owner, name, method))
                    setattr(owner, name, _recording(method, sites))


def _unwrap_methods() -> None:
    global _recorders  # noqa: PLW0603
    with _recorders_lock:
        _recorders -= 1
        if _recorders == 0:
            for owner, name, method in _wrapped:
                setattr(owner, name, method)
            _wrapped.clear()


def _recording(method: Callable[..., Any], sites: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        line = _users_line()
        if line is None:  # PySpark calls itself: the outer call has the line
            return method(*args, **kwargs)
        sites.set(method.__name__, line)
        try:
            return method(*args, **kwargs)
        finally:
            sites.clear()

    return call


def _users_line() -> str | None:
    """Return file and line of the caller's caller, or None if it is PySpark or Tailrace."""
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if file.startswith(_NOT_THE_USERS):
        return None
    return f"{file}:{frame.f_lineno}"
