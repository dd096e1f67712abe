"""Score with LightGBM: load the model once per worker, warm it up before the first record, leave nulls to the model.

The model is a text file in LightGBM's own format. It does not depend on the version that wrote it.
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
    """Return the model's features, for scoring and for train_models.py. The model handles missing values."""
    return np.column_stack([cents, country.map(COUNTRIES), hour]).astype("float64")


@functools.cache
def model() -> lgb.Booster:
    """Load the model, once per worker."""
    loaded = lgb.Booster(model_file=MODEL)
    loaded.predict(np.full((1, loaded.num_feature()), np.nan), num_threads=1)  # warm up
    return loaded


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    loaded = model()  # runs when the worker starts
    for cents, country, hour in payments:  # all pending rows
        # One thread: each partition has its own worker, and a few rows do not need more.
        yield pd.Series(loaded.predict(features(cents, country, hour), num_threads=1))


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, whatever the session time zone is
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(
    name="score-lightgbm", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-lightgbm", key="id")
)
