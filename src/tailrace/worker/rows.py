"""Functions on rows that come pickled: `@udf` without Arrow."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.worker.failures import described
from tailrace.worker.loading import Remembering, udf_info
from tailrace.worker.sending import Packed, packed


def rows(told: Mapping[str, Any]) -> Callable[..., Any]:
    """All functions of an operator over a group of rows."""
    from pyspark.util import PythonEvalType
    from pyspark.worker import RunnerConf, read_single_udf

    places = {at: at for at in range(len(told["inputs"]))}
    calls = []
    for number, each in enumerate(told["functions"]):
        loader = Remembering(number)
        offsets, call = read_single_udf(  # type: ignore[no-untyped-call]
            loader,
            udf_info(each, places),
            PythonEvalType.SQL_BATCHED_UDF,
            RunnerConf(dict(told["conf"])),
            number,
        )
        calls.append((each["name"], loader.function, offsets, call))

    def run(group: Sequence[Sequence[Any]]) -> Any:
        columns, spent = [], []
        failures: dict[int, str] = {}
        for name, function, offsets, call in calls:
            began = time.perf_counter_ns()
            results = []
            for row in group:
                try:
                    results.append(call(*[row[offset] for offset in offsets]))
                except MemoryError:
                    raise
                except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                    failures.setdefault(len(results), described(name, function, raised))
                    results.append(None)
            columns.append(results)
            spent.append(time.perf_counter_ns() - began)
        answer = packed((columns, failures or None, spent))
        if type(answer) is Packed:
            return answer
        for (name, function, _, _), results in zip(calls, columns, strict=True):
            _leave_out_unsendable(name, function, results, failures)
        return columns, failures or None, spent

    return run


def _leave_out_unsendable(name: str, function: Any, results: list[Any], failures: dict[int, str]) -> None:
    """A result that no pickler takes, such as a generator, is its row's failure."""
    from pyspark import cloudpickle

    for at, result in enumerate(results):
        try:
            cloudpickle.dumps(result)  # type: ignore[no-untyped-call]
        except Exception as raised:  # noqa: BLE001 - whatever it is, this result cannot be sent
            failures.setdefault(at, described(name, function, raised))
            results[at] = None
