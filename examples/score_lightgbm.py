"""A score from LightGBM: loaded once per worker, warm before the first record, nulls left to the model.

The model is a text of LightGBM's own, not bound to the version that wrote it.
"""

import functools
from collections.abc import Iterator
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import DoubleType

import tailrace as tr

MODEL = Path(__file__).parent / "models" / "lightgbm.txt"
COUNTRIES = {"DE": 0, "FR": 1, "JP": 2}


def features(cents: pd.Series, country: pd.Series, hour: pd.Series) -> np.ndarray:
    """What the model sees of payments, here and in train_models.py; it knows what to do where a number is missing."""
    return np.column_stack([cents, country.map(COUNTRIES), hour]).astype("float64")


@functools.cache
def model() -> lgb.Booster:
    """The model, loaded at the first call in a worker."""
    loaded = lgb.Booster(model_file=MODEL)
    loaded.predict(np.full((1, loaded.num_feature()), np.nan), num_threads=1)  # warm from here on
    return loaded


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    loaded = model()  # when the worker starts
    for cents, country, hour in payments:  # what has arrived
        # One thread: each partition has a worker of its own, and few rows are not worth more.
        yield pd.Series(loaded.predict(features(cents, country, hour), num_threads=1))


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, wherever this runs
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(
    name="score-lightgbm", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-lightgbm", key="id")
)
