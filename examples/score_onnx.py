"""Score with ONNX Runtime: load the model once per worker, warm it up before the first record.

The file holds a complete scikit-learn pipeline, including the imputer for missing numbers. It runs without
scikit-learn.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pandas as pd
from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import DoubleType

import tailrace as tr

MODEL = Path(__file__).parent / "models" / "pipeline.onnx"
COUNTRIES = {"DE": 1, "FR": 2, "JP": 3}


def features(cents: pd.Series, country: pd.Series, hour: pd.Series) -> np.ndarray:
    """Return the model's features, for scoring and for train_models.py. A null country counts as unknown."""
    return np.column_stack([cents, country.map(COUNTRIES).fillna(0), hour]).astype("float32")


def probabilities(session: ort.InferenceSession, rows: np.ndarray) -> np.ndarray:
    return session.run(["probabilities"], {"features": rows})[0][:, 1].astype("float64")


@functools.cache
def model() -> ort.InferenceSession:
    """Load the model, once per worker."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # the default is one thread per core, in each worker
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    probabilities(session, np.full((1, 3), np.nan, "float32"))  # warm up
    return session


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    session = model()  # runs when the worker starts
    for cents, country, hour in payments:  # all pending rows
        # Round, because a 32-bit float has no more digits.
        yield pd.Series(probabilities(session, features(cents, country, hour)).round(6))


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, whatever the session time zone is
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(name="score-onnx", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-onnx", key="id"))
