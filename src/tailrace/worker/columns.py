"""Functions on columns: `@pandas_udf`, `arrow_udf`, `@udf` with Arrow."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.worker.failures import FunctionFailed, describe_failure
from tailrace.worker.fast_path import with_fast_path
from tailrace.worker.loading import CachingLoader, udf_info
from tailrace.worker.messages import ReplyEncoder, batch_reader
from tailrace.worker.plain import PlainBatch, combine_columns, concat_batches

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnFunction:
    """One function on columns, as Spark's worker evaluates it."""

    def __init__(self, spec: Mapping[str, Any], index: int = 0) -> None:
        from pyspark.worker import EvalConf, RunnerConf, read_udfs

        function = spec["functions"][index]
        inputs = sorted({*function["args"], *function["kwargs"].values()})
        self.name = function["name"]
        self._eval_type = spec["kind"]
        self._inputs = inputs or [0]  # a function without arguments is still called once per row
        self._takes_all = len(inputs) == len(spec["inputs"])
        positions = {number: position for position, number in enumerate(inputs)}
        fields = [
            {"name": f"_{position}", "type": json.loads(spec["inputs"][number]), "nullable": True, "metadata": {}}
            for position, number in enumerate(inputs)
        ]
        self._loader = CachingLoader(index)
        self._conf = RunnerConf(dict(spec["conf"]))
        evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
            self._loader,
            [udf_info(function, positions)],
            self._eval_type,
            self._conf,
            EvalConf({"input_type": json.dumps({"type": "struct", "fields": fields})}),
        )
        self._evaluate = with_fast_path(evaluate, self._eval_type)
        self.function = self._loader.function
        self._type: Any = None

    def evaluate(self, batch: Any) -> Any:
        """Return the results for a batch of all inputs."""
        (results,) = self.evaluate_all([batch])
        return results

    def evaluate_all(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the results for batches of all inputs, as batches of one column."""
        inputs = batches if self._takes_all else (batch.select(self._inputs) for batch in batches)
        for results in self._evaluate(0, inputs):
            yield self._of_first_type(results)

    def evaluate_rows(self, batches: Iterable[Any], failures: dict[int, str]) -> list[Any]:
        """Return the results with each row in a call of its own, and add what fails to `failures` by index."""
        results: list[Any] = []
        for row in (batch.slice(number, 1) for batch in batches for number in range(batch.num_rows)):
            try:
                results.append(concat_batches(list(self.evaluate_all([row]))))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is the failure of its row
                failures.setdefault(len(results), describe_failure(self.name, self.function, raised))
                results.append(self.null_result())
        return results

    def null_result(self) -> "pa.RecordBatch":
        """Return a null as the result of one row."""
        import pyarrow as pa

        if self._type is None:
            self._type = self._declared_type()
        return pa.RecordBatch.from_arrays([pa.nulls(1, self._type)], ["_0"])

    def _of_first_type(self, results: Any) -> Any:
        """Cast Arrow results to the type of the first ones: all Arrow replies share a schema."""
        if isinstance(results, PlainBatch):
            return results
        import pyarrow as pa

        column = results.column(0)
        if self._type is None:
            self._type = column.type
        return results if column.type == self._type else pa.RecordBatch.from_arrays([column.cast(self._type)], ["_0"])

    def _declared_type(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.util import PythonEvalType

        _, declared = self._loader.loaded[-1]
        pandas = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
        zone = self._conf.timezone if self._eval_type in pandas else "UTC"
        return to_arrow_type(declared, timezone=zone, prefers_large_types=self._conf.use_large_var_types)


def column_functions(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs all functions of an operator on a batch."""
    functions = [ColumnFunction(spec, index) for index in range(len(spec["functions"]))]
    read, replies = batch_reader(spec), ReplyEncoder()

    def run(message: Any) -> Any:
        batch = read(message)
        results, times = [], []
        failures: dict[int, str] = {}
        for function in functions:
            began = time.perf_counter_ns()
            failure: Exception | None = None
            try:
                results.append(function.evaluate(batch))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is the failure of its row
                failure = raised
            if failure is not None:  # outside of the except block, so that single rows do not chain to it
                results.append(_retry_rows(function, batch, failures, failure, must_fail=spec["must_fail"]))
            times.append(time.perf_counter_ns() - began)
        return replies.encode(combine_columns(results), failures, times)

    return run


def _retry_rows(
    function: ColumnFunction, batch: Any, failures: dict[int, str], raised: Exception, *, must_fail: bool
) -> Any:
    """Return the results for a batch on which a function failed, and add the failures of its rows."""
    own: dict[int, str] = {}
    if batch.num_rows == 1:
        own[0] = describe_failure(function.name, function.function, raised)
        results = function.null_result()
    else:
        results = concat_batches(function.evaluate_rows([batch], own))
    if not own and must_fail:  # no single row fails, but the user must see the exception
        raise FunctionFailed.from_exception(function.name, function.function, raised) from None
    for index, failure in own.items():
        failures.setdefault(index, failure)
    return results
