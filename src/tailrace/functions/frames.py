"""Functions on whole rows: `mapInPandas` and `mapInArrow`."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.functions.failures import FunctionFailed, described
from tailrace.functions.loading import Remembering, udf_info
from tailrace.functions.messages import Answers, reader
from tailrace.functions.plain import with_short_ways
from tailrace.functions.pulling import Pulling, pulling

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT_BACK = 16
"""So many batches may a function take before it makes something of the first, and have them back when it raises."""


def frames(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that makes as many rows as it likes of each, batch by batch."""
    from pyspark.worker import EvalConf, RunnerConf, read_udfs

    (each,) = told["functions"]
    conf = RunnerConf(dict(told["conf"]))
    evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
        Remembering(), [udf_info(each, {0: 0})], told["kind"], conf, EvalConf({})
    )
    mapped = Frames(each["name"], with_short_ways(evaluate), told["alone"])
    mapped.begin()
    read, answers, shape = reader(told), Answers(), Shape()

    def run(message: bytes) -> Any:
        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        made, done = mapped.over(read(message), failures)
        spent = time.perf_counter_ns() - began
        return answers.of(shape.of(made), failures, [spent], done)

    return run


class Frames:
    """A function over batches of whole rows, and the rows that it may still make something of.

    Whether a function keeps rows back cannot be known: those of the last batch of which it made something stay open,
    as long as it lives. After an exception it is called anew, and each row of what it had made nothing of is tried
    alone. The first `alone` batches are tried so, too: a worker has ended over one of them.
    """

    def __init__(self, name: str, evaluate: Callable[..., Any], alone: int) -> None:
        self._name = name
        self._evaluate = evaluate
        self._alone = alone
        self._pulling: Pulling | None = None
        self._open = 0
        self._silent: deque[pa.RecordBatch] = deque(maxlen=_KEPT_BACK)

    def over(self, batch: "pa.RecordBatch | None", failures: dict[int, str]) -> tuple[list["pa.RecordBatch"], int]:
        """What the function makes before it asks for the next batch, and how many of the open rows are done with."""
        if batch is not None:
            self._open += batch.num_rows
            self._silent.append(batch)
        if batch is not None and self._alone > 0:
            self._alone -= 1
            return self._one_by_one(failures), self._closed(but=0)
        try:
            made = self._pulled(batch)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
            begun = self._pulling is not None and self._pulling.begun
            self._pulling = None
            if not begun or not self._silent:
                raise FunctionFailed.by(self._name, raised) from None
            return self._one_by_one(failures), self._closed(but=0)
        if batch is None or self._pulling is None or self._pulling.ended:
            return made, self._closed(but=0)
        if made:
            self._silent.clear()
            return made, self._closed(but=batch.num_rows)
        return made, 0

    def begin(self) -> None:
        """What the function does before its first batch, like loading a model, it does now."""
        try:
            self._pulling = pulling(self._call)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises
            raise FunctionFailed.by(self._name, raised) from None

    def _pulled(self, batch: "pa.RecordBatch | None") -> list["pa.RecordBatch"]:
        if self._pulling is None and batch is not None:
            self._pulling = pulling(self._call)
        return self._pulling.take(batch) if self._pulling is not None else []

    def _call(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from pyspark.sql.conversion import ArrowBatchTransformer

        for made in self._evaluate(0, map(ArrowBatchTransformer.wrap_struct, batches)):
            yield ArrowBatchTransformer.flatten_struct(made)

    def _one_by_one(self, failures: dict[int, str]) -> list["pa.RecordBatch"]:
        """What the function makes of each row in a call of its own, and what went wrong with which."""
        rows = [batch.slice(at, 1) for batch in self._silent for at in range(batch.num_rows)]
        made: list[pa.RecordBatch] = []
        for at, row in enumerate(rows, start=self._open - len(rows)):
            try:
                made += list(self._call(iter([row])))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                failures[at] = described(self._name, raised)
        self._silent.clear()
        return made

    def _closed(self, *, but: int) -> int:
        """How many open rows are done with, where so many remain."""
        done, self._open = self._open - but, but
        return done


class Shape:
    """The columns of answers: as those of the first."""

    def __init__(self) -> None:
        self._schema: Any = None

    def of(self, made: Sequence["pa.RecordBatch"]) -> "pa.RecordBatch | None":
        """Batches as one, or None where there is nothing."""
        import pyarrow as pa

        batches = [self._fitting(each) for each in made if each.num_rows > 0]
        if len(batches) < 2:
            return batches[0] if batches else None
        (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return whole

    def _fitting(self, made: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        if self._schema is None:
            self._schema = made.schema
        if made.schema == self._schema:
            return made
        columns = [column.cast(field.type) for column, field in zip(made.columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
