"""Functions on rows that come pickled: `@udf` without Arrow."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.functions.failures import described
from tailrace.functions.loading import Remembering, udf_info


def rows(told: Mapping[str, Any]) -> Callable[..., Any]:
    """All functions of an operator over a group of rows."""
    from pyspark.util import PythonEvalType
    from pyspark.worker import RunnerConf, read_single_udf

    places = {at: at for at in range(len(told["inputs"]))}
    calls = []
    for number, each in enumerate(told["functions"]):
        offsets, call = read_single_udf(  # type: ignore[no-untyped-call]
            Remembering(number),
            udf_info(each, places),
            PythonEvalType.SQL_BATCHED_UDF,
            RunnerConf(dict(told["conf"])),
            number,
        )
        calls.append((each["name"], offsets, call))

    def run(group: Sequence[Sequence[Any]]) -> Any:
        columns, spent = [], []
        failures: dict[int, str] = {}
        for name, offsets, call in calls:
            began = time.perf_counter_ns()
            results = []
            for row in group:
                try:
                    results.append(call(*[row[offset] for offset in offsets]))
                except MemoryError:
                    raise
                except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                    failures.setdefault(len(results), described(name, raised))
                    results.append(None)
            columns.append(results)
            spent.append(time.perf_counter_ns() - began)
        return columns, failures or None, spent

    return run
