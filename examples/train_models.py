"""Train the models of the examples, in seconds: python examples/train_models.py."""

import json
import sys
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import score_lightgbm
import score_onnx
import score_sklearn
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

Payments = tuple[pd.Series, pd.Series, pd.Series]


def payments(count: int = 5000) -> tuple[Payments, np.ndarray]:
    """Return generated payments (amount, country, hour; some values missing) and which of them are fraud."""
    random = np.random.default_rng(7)
    cents = pd.Series(np.round(np.exp(random.normal(8, 1.5, count))))
    country = pd.Series(random.choice(["DE", "FR", "JP", "XX"], count, p=[0.5, 0.3, 0.1, 0.1]))
    hour = pd.Series(random.integers(0, 24, count).astype("float64"))
    risk = -9 + 0.8 * np.log1p(cents / 100) + 3 * (hour < 6) + 2 * (country == "XX")
    fraud = random.random(count) < 1 / (1 + np.exp(-risk))
    for column in (cents, country, hour):
        column[random.random(count) < 0.05] = None
    return (cents, country, hour), fraud.to_numpy().astype("int64")


def train(folder: Path) -> None:
    """Train the three models and write them to a folder."""
    columns, fraud = payments()
    linear = LogisticRegression(max_iter=1000).fit(score_sklearn.features(*columns), fraud)
    parameters = {"coefficients": linear.coef_[0].tolist(), "intercept": float(linear.intercept_[0])}
    (folder / score_sklearn.PARAMETERS.name).write_text(json.dumps(parameters, indent=2) + "\n")

    rows = lgb.Dataset(score_lightgbm.features(*columns), fraud, categorical_feature=[1])
    settings = {"objective": "binary", "num_leaves": 8, "deterministic": True, "num_threads": 1, "verbosity": -1}
    lgb.train(settings, rows, num_boost_round=30).save_model(folder / score_lightgbm.MODEL.name)

    trees = GradientBoostingClassifier(n_estimators=30, max_depth=3, random_state=7)
    pipeline = make_pipeline(SimpleImputer(strategy="median"), trees).fit(score_onnx.features(*columns), fraud)
    converted = to_onnx(
        pipeline, initial_types=[("features", FloatTensorType([None, 3]))], options={id(trees): {"zipmap": False}}
    )
    converted.opset_import.sort(key=lambda each: each.domain)  # for a reproducible file
    (folder / score_onnx.MODEL.name).write_bytes(converted.SerializeToString())


if __name__ == "__main__":
    train(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "models")
