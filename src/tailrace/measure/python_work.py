"""The score of the work ``python``: the same by every kind of Python function that PySpark has."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_OUTPUT = "id long, sent_ns long, key string, score double"


def score(amount: float) -> float:
    """Compute the score, the same in every engine."""
    return min(1.0, math.log1p(amount) / 10)


def transform(events: "DataFrame") -> "DataFrame":
    """Score each event by an ordinary `@udf`."""
    from pyspark.sql import functions as F

    return _scored(events, F.udf(score, "double")("amount"))


def _scores(amount: "pd.Series | pa.Array") -> Any:
    """On NumPy arrays, as models take them: for few rows an operation of pandas or Arrow takes longer."""
    import numpy as np

    return np.minimum(np.log1p(amount.to_numpy()) / 10, 1.0)


def _scored(events: "DataFrame", column: "Column") -> "DataFrame":
    return events.where("amount >= 0").select("id", "sent_ns", "key", column.alias("score"))


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

    decorator: Any = pandas_udf  # PySpark's types accept only functions of the stubs' own pandas
    return _scored(events, decorator(scores, "double")("amount"))


def _pandas_iter(events: "DataFrame") -> "DataFrame":
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def scores(amounts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for amount in amounts:
            yield pd.Series(_scores(amount))

    decorator: Any = pandas_udf  # PySpark's types accept only functions of the stubs' own pandas
    return _scored(events, decorator(scores, "double")("amount"))


def _arrow(events: "DataFrame") -> "DataFrame":
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def scores(amount: pa.Array) -> pa.Array:
        return pa.array(_scores(amount))

    decorator: Any = arrow_udf
    return _scored(events, decorator(scores, "double")("amount"))


def _map_pandas(events: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    def scored(frames: "Iterator[pd.DataFrame]") -> "Iterator[pd.DataFrame]":
        for frame in frames:  # changed in place: a new frame takes three times as long
            frame["score"] = _scores(frame["score"])
            yield frame

    return _scored(events, F.col("amount")).mapInPandas(scored, _OUTPUT)


def _map_arrow(events: "DataFrame") -> "DataFrame":
    def scored(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for batch in batches:
            columns = [batch.column(name) for name in ("id", "sent_ns", "key")]
            columns.append(pa.array(_scores(batch.column("amount"))))
            yield pa.RecordBatch.from_arrays(columns, ["id", "sent_ns", "key", "score"])

    return events.where("amount >= 0").mapInArrow(scored, _OUTPUT)


@dataclass(frozen=True)
class FunctionKind:
    """A kind of function that computes the score."""

    title: str
    transform: "Callable[[DataFrame], DataFrame]"


FUNCTIONS: Mapping[str, FunctionKind] = {
    "builtin": FunctionKind("a built-in expression", _builtin),
    "udf": FunctionKind("@udf", _udf),
    "udf-arrow": FunctionKind("@udf with Arrow", _udf_arrow),
    "pandas": FunctionKind("@pandas_udf", _pandas),
    "pandas-iter": FunctionKind("@pandas_udf over an iterator", _pandas_iter),
    "arrow": FunctionKind("arrow_udf", _arrow),
    "map-pandas": FunctionKind("mapInPandas", _map_pandas),
    "map-arrow": FunctionKind("mapInArrow", _map_arrow),
}
"""By the name that follows ``realtime-`` in a lane's name."""
