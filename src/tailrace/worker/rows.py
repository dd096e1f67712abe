"""Functions on pickled rows: `@udf` without Arrow."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.worker.failures import describe_failure
from tailrace.worker.loading import CachingLoader, udf_info
from tailrace.worker.reply import PickledReply, pickle_reply


def row_functions(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs all functions of an operator on a batch of rows."""
    from pyspark.util import PythonEvalType
    from pyspark.worker import RunnerConf, read_single_udf

    positions = {number: number for number in range(len(spec["inputs"]))}
    calls = []
    for index, function in enumerate(spec["functions"]):
        loader = CachingLoader(index)
        offsets, call = read_single_udf(  # type: ignore[no-untyped-call]
            loader,
            udf_info(function, positions),
            PythonEvalType.SQL_BATCHED_UDF,
            RunnerConf(dict(spec["conf"])),
            index,
        )
        calls.append((function["name"], loader.function, offsets, call))

    def run(batch: Sequence[Sequence[Any]]) -> Any:
        columns, times = [], []
        failures: dict[int, str] = {}
        for name, function, offsets, call in calls:
            began = time.perf_counter_ns()
            results = []
            for row in batch:
                try:
                    results.append(call(*[row[offset] for offset in offsets]))
                except MemoryError:
                    raise
                except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is the failure of its row
                    failures.setdefault(len(results), describe_failure(name, function, raised))
                    results.append(None)
            columns.append(results)
            times.append(time.perf_counter_ns() - began)
        reply = pickle_reply((columns, failures or None, times))
        if type(reply) is PickledReply:
            return reply
        for (name, function, _, _), results in zip(calls, columns, strict=True):
            _fail_unpicklable(name, function, results, failures)
        return columns, failures or None, times

    return run


def _fail_unpicklable(name: str, function: Any, results: list[Any], failures: dict[int, str]) -> None:
    """Replace each result that cannot be pickled, such as a generator, by None and a failure of its row."""
    from pyspark import cloudpickle

    for index, result in enumerate(results):
        try:
            cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
        except Exception as raised:  # noqa: BLE001 - whatever the reason, this result cannot be sent
            failures.setdefault(index, describe_failure(name, function, raised))
            results[index] = None
