"""A score from ONNX Runtime: loaded once per worker, warm before the first record.

The file holds the whole of a scikit-learn pipeline, what to put in for missing numbers included. No scikit-learn is
needed to run it.
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
    """What the model sees of payments, here and in train_models.py; no country is another country."""
    return np.column_stack([cents, country.map(COUNTRIES).fillna(0), hour]).astype("float32")


def chances(session: ort.InferenceSession, rows: np.ndarray) -> np.ndarray:
    return session.run(["probabilities"], {"features": rows})[0][:, 1].astype("float64")


@functools.cache
def model() -> ort.InferenceSession:
    """The model, loaded at the first call in a worker."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # by default a thread for each core, in each worker
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    chances(session, np.full((1, 3), np.nan, "float32"))  # warm from here on
    return session


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    session = model()  # when the worker starts
    for cents, country, hour in payments:  # what has arrived
        yield pd.Series(chances(session, features(cents, country, hour)).round(6))  # a float has no more digits


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, wherever this runs
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(name="score-onnx", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-onnx", key="id"))
