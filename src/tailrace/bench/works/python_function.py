"""A score for each event, made by a function in Python, of any kind that PySpark has."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.bench.works.compare import differs
from tailrace.traffic.events import event

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_OUTPUT = "id long, sent_ns long, key string, score double"


def score(amount: float) -> float:
    """What the function computes, in every engine."""
    return min(1.0, math.log1p(amount) / 10)


def _scores(amount: "pd.Series | pa.Array") -> Any:
    """On numpy's arrays, as models take them: for few rows an operation of pandas or Arrow takes longer than these."""
    import numpy as np

    return np.minimum(np.log1p(amount.to_numpy()) / 10, 1.0)


def transform(events: "DataFrame") -> "DataFrame":
    """An ordinary `@udf`."""
    from pyspark.sql import functions as F

    return _scored(events, F.udf(score, "double")("amount"))


def _scored(events: "DataFrame", made: "Column") -> "DataFrame":
    return events.where("amount >= 0").select("id", "sent_ns", "key", made.alias("score"))


def _builtin(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return _scored(events, F.least(F.lit(1.0), F.log1p("amount") / 10))


def _udf(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return _scored(events, F.udf(score, "double", useArrow=False)("amount"))


def _udf_arrow(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return _scored(events, F.udf(score, "double", useArrow=True)("amount"))


def _pandas(events: "DataFrame") -> "DataFrame":
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def scores(amount: pd.Series) -> pd.Series:
        return pd.Series(_scores(amount))

    made: Any = pandas_udf  # PySpark's type information knows only functions of the stubs' own pandas
    return _scored(events, made(scores, "double")("amount"))


def _pandas_iter(events: "DataFrame") -> "DataFrame":
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def scores(amounts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for amount in amounts:
            yield pd.Series(_scores(amount))

    made: Any = pandas_udf  # PySpark's type information knows only functions of the stubs' own pandas
    return _scored(events, made(scores, "double")("amount"))


def _arrow(events: "DataFrame") -> "DataFrame":
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def scores(amount: pa.Array) -> pa.Array:
        return pa.array(_scores(amount))

    made: Any = arrow_udf
    return _scored(events, made(scores, "double")("amount"))


def _map_pandas(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    def scored(frames: "Iterator[pd.DataFrame]") -> "Iterator[pd.DataFrame]":
        for frame in frames:  # a frame of its own, to be changed: to make another takes three times as long
            frame["score"] = _scores(frame["score"])
            yield frame

    return _scored(events, F.col("amount")).mapInPandas(scored, _OUTPUT)


def _map_arrow(events: "DataFrame") -> "DataFrame":
    def scored(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            columns = [batch.column(name) for name in ("id", "sent_ns", "key")]
            made = [*columns, pa.array(_scores(batch.column("amount")))]
            yield pa.RecordBatch.from_arrays(made, ["id", "sent_ns", "key", "score"])

    return events.where("amount >= 0").mapInArrow(scored, _OUTPUT)


@dataclass(frozen=True)
class Kind:
    """A way to make the score."""

    title: str
    transform: "Callable[[DataFrame], DataFrame]"


KINDS: Mapping[str, Kind] = {
    "builtin": Kind("a built-in expression", _builtin),
    "udf": Kind("@udf", _udf),
    "udf-arrow": Kind("@udf with Arrow", _udf_arrow),
    "pandas": Kind("@pandas_udf", _pandas),
    "pandas-iter": Kind("@pandas_udf over an iterator", _pandas_iter),
    "arrow": Kind("arrow_udf", _arrow),
    "map-pandas": Kind("mapInPandas", _map_pandas),
    "map-arrow": Kind("mapInArrow", _map_arrow),
}


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """Results with another score."""
    return sum(differs(each.get("score"), score(event(each["id"]).amount), 1e-9) for each in outputs)
