"""What Spark would do with a query, found without starting it."""

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
"""How many record lines right now: methods are wrapped for the first, and unwrapped after the last."""
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
    """What Spark would do with a streaming query, found without starting it.

    Args:
        frame: What is written.
        output_mode: ``append``, ``update`` or ``complete``.
        microbatch_mode: The output mode in micro-batch, if it differs.
        interval_ms: How long a real-time batch lasts; 0 means micro-batch.
        sink: Where it goes, where that is known.
        ask: Whether the broker may be asked which tasks its topics make; it is waited for where it does not answer.
        starts: Where the checkpoint says that each source goes on; none for a fresh one.
    """
    format_, options = (sink.format, dict(sink.options)) if sink is not None else (None, {})
    preflight = tailrace_of(frame.sparkSession).Preflight
    modes = output_mode.lower(), (microbatch_mode or output_mode).lower()
    told = json.loads(preflight.examine(frame._jdf, *modes, format_, options, interval_ms, ask, list(starts)))
    refusals = tuple(Refusal(**refusal) for refusal in told["refusals"])
    plan = _operator(told["plan"]) if told["plan"] is not None else None
    calls = tuple(Call(**call) for call in told["calls"])
    return Examined(
        plan,
        refusals,
        tuple(told["tasks"]),
        tuple(told["windows_s"]),
        calls,
        pivots=told["pivots"],
        microbatch=told["microbatch"],
    )


def _operator(told: Mapping[str, Any]) -> Operator:
    """A plan node and those below it."""
    return Operator(
        told["name"],
        told["partitions"],
        tuple(_operator(child) for child in told["children"]),
        refused=told["refused"],
        implied=told["implied"],
        fixed=told["fixed"],
        bounded=told["bounded"],
        functions=tuple(told["functions"]),
        path=told["path"],
        call=told["call"],
        line=told["line"],
    )


def stream_reads(frame: DataFrame) -> list[StreamRead]:
    """The streaming sources that a DataFrame reads."""
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
    """Let what DataFrame calls add to a plan remember the user's line, while this lasts."""
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
    """Where the caller's caller is, if that is neither PySpark nor Tailrace."""
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if file.startswith(_NOT_THE_USERS):
        return None
    return f"{file}:{frame.f_lineno}"
