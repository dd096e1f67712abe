"""Functions on columns: `@pandas_udf`, `arrow_udf`, `@udf` with Arrow."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.worker.failures import FunctionFailed, described
from tailrace.worker.loading import Remembering, udf_info
from tailrace.worker.messages import Answers, reader
from tailrace.worker.plain import PlainBatch, beside, joined
from tailrace.worker.short_ways import with_short_ways

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnFunction:
    """One function on columns, as Spark's worker evaluates it."""

    def __init__(self, told: Mapping[str, Any], place: int = 0) -> None:
        from pyspark.worker import EvalConf, RunnerConf, read_udfs

        each = told["functions"][place]
        taken = sorted({*each["args"], *each["kwargs"].values()})
        self.name = each["name"]
        self._told = told
        self._columns = taken or [0]  # one that takes nothing is still called once per row
        self._takes_all = len(taken) == len(told["inputs"])
        places = {at: number for number, at in enumerate(taken)}
        fields = [
            {"name": f"_{number}", "type": json.loads(told["inputs"][at]), "nullable": True, "metadata": {}}
            for number, at in enumerate(taken)
        ]
        self._loader = Remembering(place)
        self._conf = RunnerConf(dict(told["conf"]))
        evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
            self._loader,
            [udf_info(each, places)],
            told["kind"],
            self._conf,
            EvalConf({"input_type": json.dumps({"type": "struct", "fields": fields})}),
        )
        self._evaluate = with_short_ways(evaluate, told["kind"])
        self.function = self._loader.function
        self._type: Any = None

    def of(self, batch: Any) -> Any:
        """Its results for a batch of every input."""
        (made,) = self.over([batch])
        return made

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Its results for batches of every input, a batch of one column for each that it makes."""
        taken = batches if self._takes_all else (batch.select(self._columns) for batch in batches)
        for made in self._evaluate(0, taken):
            yield self._fitting(made)

    def one_by_one(self, batches: Iterable[Any], failures: dict[int, str]) -> list[Any]:
        """Its results for batches, each row in a call of its own, and what went wrong with which."""
        made: list[Any] = []
        for row in (batch.slice(at, 1) for batch in batches for at in range(batch.num_rows)):
            try:
                made.append(joined(list(self.over([row]))))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                failures.setdefault(len(made), described(self.name, self.function, raised))
                made.append(self.nothing())
        return made

    def nothing(self) -> "pa.RecordBatch":
        """A result of one row that is none."""
        import pyarrow as pa

        if self._type is None:
            self._type = self._declared_type()
        return pa.RecordBatch.from_arrays([pa.nulls(1, self._type)], ["_0"])

    def _fitting(self, made: Any) -> Any:
        """Of the same type as those before: a stream of Arrow has one."""
        if isinstance(made, PlainBatch):
            return made
        import pyarrow as pa

        column = made.column(0)
        if self._type is None:
            self._type = column.type
        return made if column.type == self._type else pa.RecordBatch.from_arrays([column.cast(self._type)], ["_0"])

    def _declared_type(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.util import PythonEvalType

        _, declared = self._loader.loaded[-1]
        pandas = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
        zone = self._conf.timezone if self._told["kind"] in pandas else "UTC"
        return to_arrow_type(declared, timezone=zone, prefers_large_types=self._conf.use_large_var_types)


def columns(told: Mapping[str, Any]) -> Callable[..., Any]:
    """All functions of an operator over a batch of rows."""
    functions = [ColumnFunction(told, place) for place in range(len(told["functions"]))]
    read, answers = reader(told), Answers()

    def run(message: Any) -> Any:
        batch = read(message)
        results, spent = [], []
        failures: dict[int, str] = {}
        for each in functions:
            began = time.perf_counter_ns()
            failure: Exception | None = None
            try:
                results.append(each.of(batch))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                failure = raised
            if failure is not None:  # not above, where it would be the context of what single rows raise
                results.append(_failed(each, batch, failures, failure, must_fail=told["must_fail"]))
            spent.append(time.perf_counter_ns() - began)
        return answers.of(beside(results), failures, spent)

    return run


def _failed(each: ColumnFunction, batch: Any, failures: dict[int, str], raised: Exception, *, must_fail: bool) -> Any:
    """The results for a batch that a function fails on, which it may not do for all of its rows."""
    own: dict[int, str] = {}
    if batch.num_rows == 1:
        own[0] = described(each.name, each.function, raised)
        made = each.nothing()
    else:
        made = joined(each.one_by_one([batch], own))
    if not own and must_fail:  # it is to be seen, though no row has to do with it
        raise FunctionFailed.by(each.name, each.function, raised) from None
    for at, failure in own.items():
        failures.setdefault(at, failure)
    return made
