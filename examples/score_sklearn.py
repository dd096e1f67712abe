"""Score with scikit-learn: load the model once per worker, warm it up before the first record.

The model's parameters are plain numbers in a JSON file. A pickle can run code when it is opened, and only the
scikit-learn version that wrote it can safely read it.
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
    """Return the model's features, for scoring and for train_models.py. A null country counts as unknown."""
    euros = np.log1p(np.fmax(cents.to_numpy("float64"), 0) / 100)  # fmax ignores NaN: a null amount counts as 0
    night = hour.to_numpy("float64") < 6
    return np.column_stack([euros, night, *(country.to_numpy() == each for each in COUNTRIES)]).astype("float64")


@functools.cache
def model() -> LogisticRegression:
    """Load the model, once per worker."""
    parameters = json.loads(PARAMETERS.read_text())
    loaded = LogisticRegression()
    loaded.classes_ = np.array([0, 1])
    loaded.coef_ = np.array([parameters["coefficients"]])
    loaded.intercept_ = np.array([parameters["intercept"]])
    loaded.predict_proba(np.zeros((1, len(parameters["coefficients"]))))  # warm up
    return loaded


@pandas_udf(DoubleType())
def score(payments: Iterator[tuple[pd.Series, pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    loaded = model()  # runs when the worker starts
    for cents, country, hour in payments:  # all pending rows
        scores = loaded.predict_proba(features(cents, country, hour))[:, 1]
        # Round, because the last digits depend on the number of rows in the call. A null amount has no score.
        yield pd.Series(scores.round(6)).where(cents.notna())


def scored(payments: DataFrame) -> DataFrame:
    hour = F.expr("unix_seconds(at) div 3600 % 24")  # in UTC, whatever the session time zone is
    return payments.select("id", score("cents", "country", hour).alias("score"))


pipeline = tr.Pipeline(
    name="score-sklearn", source=PAYMENTS, transform=scored, sink=tr.KafkaSink("scores-sklearn", key="id")
)
