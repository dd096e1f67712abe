"""A score from scikit-learn: loaded once per worker, warm before the first record.

The model's parameters are plain numbers in a file. A pickle would run code when it is opened, and only the version of
scikit-learn that wrote it may read it.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import DoubleType
from sklearn.linear_model import LogisticRegression

import tailrace as tr

PARAMETERS = Path(__file__).parent / "models" / "sklearn.json"
COUNTRIES = ("DE", "FR", "JP")


def features(cents: pd.Series, country: pd.Series, hour: pd.Series) -> np.ndarray:
    """What the model sees of payments, here and in train_models.py; no country is another country."""
    euros = np.log1p(np.fmax(cents.to_numpy("float64"), 0) / 100)  # of a number and none, fmax takes the number
    night = hour.to_numpy("float64") < 6
    return np.column_stack([euros, night, *(country.to_numpy() == each for each in COUNTRIES)]).astype("float64")


@functools.cache
def model() -> LogisticRegression:
    """The model, loaded at the first call in a worker."""
    parameters = json.loads(PARAMETERS.read_text())
    loaded = LogisticRegression()
    loaded.classes_ = np.array([0, 1])
    loaded.coef_ = np.array([parameters["coefficients"]])
    loaded.intercept_ = np.array([parameters["intercept"]])
    loaded.predict_proba(np.zeros((1, len(parameters["coefficients"]))))  # warm from here on
    return loaded


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    loaded = model()  # when the worker starts
    for cents, country, hour in payments:  # what has arrived
        made = loaded.predict_proba(features(cents, country, hour))[:, 1]
        # Rounded, because the last digits depend on how many rows are added up at once. No amount, no score.
        yield pd.Series(made.round(6)).where(cents.notna())


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, wherever this runs
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(
    name="score-sklearn", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-sklearn", key="id")
)
