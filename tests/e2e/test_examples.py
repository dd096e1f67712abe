"""Test what the examples write, and that batch, micro-batch and real time agree on generated records.

`generated.py` sets how many inputs are generated for each example.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import onnxruntime as ort
import pytest
from generated import on_spark
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.prepare.loader import load_pipeline
from tailrace.testing import at, require_equal_modes, run

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1800)]

EXAMPLES = Path(__file__).parents[2] / "examples"

STATEFUL = {"totals": ["card"], "per_minute": ["minute", "country"], "sliding": ["since"], "first_seen": []}
"""The key columns of the examples with state: only the last row of a key is compared."""
MORE_TOPICS = {"route": ["large-payments"]}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("payments", "train_models"))

payments = st.fixed_dictionaries(
    {"id": st.integers(0, 50)},
    optional={
        "card": st.sampled_from(["c1", "c2", "c3", "ünïcode \U0001f40b", ""]) | st.none(),
        "cents": st.integers(-(10**6), 10**6) | st.none(),
        "country": st.sampled_from(["DE", "FR", "JP", "XX"]) | st.none() | st.text(max_size=3),
        "tags": st.lists(st.sampled_from(["a", "b"]) | st.none(), max_size=3) | st.none(),
        # Within the watermark's hour: later records are dropped at batch boundaries, which differ between modes.
        "at": st.integers(0, 59 * 60).map(lambda second: at(f"12:{second // 60:02d}:{second % 60:02d}").isoformat()),
    },
)
rows = st.lists(payments | st.sampled_from(["{broken", "[]"]), min_size=20, max_size=80)


def example(name: str) -> tr.Pipeline:
    return load_pipeline(str(EXAMPLES / f"{name}.py"))


def test_every_example_is_listed_and_loads() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert len(NAMES) == 12
    for name in NAMES:
        assert f"`{name}.py`" in listed
        assert example(name).sources[0].topic_names == ("payments",)


@pytest.mark.parametrize("name", NAMES)
def test_batch_micro_batch_and_real_time_agree(name: str) -> None:
    here = example(name)

    @on_spark
    @given(rows)
    def agree(sent: list[Any]) -> None:
        output = require_equal_modes(here, sent, by=STATEFUL.get(name, ()), topics=MORE_TOPICS.get(name, ()))
        assert len(output.dead_letters) == sum(isinstance(row, str) for row in sent)

    agree()


SENT = [
    {"id": 1, "card": "c1", "cents": 20_000, "country": "FR", "tags": ["a", "b"], "at": at("12:00:10")},
    {"id": 2, "card": "c1", "cents": 500, "country": "DE", "tags": [], "at": at("12:00:50")},
    {"id": 3, "card": "c2", "cents": 700, "country": "FR", "tags": ["a"], "at": at("12:06:00")},
    {"id": 4, "card": "c1", "cents": 100, "country": "FR", "tags": None, "at": at("12:06:30")},
]


def test_windows_and_totals_are_these() -> None:
    # In batch: the test above compares the other modes with it.
    totals = run(example("totals"), SENT, "batch").last("card")
    assert totals["c1"] == {"card": "c1", "payments": 3, "cents": 20_600, "latest": "2026-01-01T12:06:30.000Z"}
    minutes = run(example("per_minute"), SENT, "batch").last("minute", "country")
    assert {(minute[11:16], country): row["payments"] for (minute, country), row in minutes.items()} == {
        ("12:00", "FR"): 1,
        ("12:00", "DE"): 1,
        ("12:06", "FR"): 2,
    }
    sliding = run(example("sliding"), SENT, "batch").last("since")
    assert {since[11:16]: row["largest"] for since, row in sliding.items()} == {
        "11:55": 20_000,
        "12:00": 20_000,
        "12:05": 700,
    }


def test_the_others_are_these() -> None:
    assert [row["id"] for row in run(example("filter"), SENT, "batch").rows] == [1]
    tags = run(example("explode"), SENT, "batch").rows
    assert sorted((row["id"], row["tag"]) for row in tags) == [(1, "a"), (1, "b"), (3, "a")]
    routed = run(example("route"), SENT, "batch", topics=["large-payments"]).records
    assert {record.row["id"]: record.topic for record in routed} == {
        1: "large-payments",
        2: "small-payments",
        3: "small-payments",
        4: "small-payments",
    }
    assert {record.header("country") for record in routed} == {b"FR", b"DE"}
    regions = run(example("enrich"), SENT, "batch").rows
    assert {row["region"] for row in regions} == {"europe"}
    first = run(example("first_seen"), SENT, "batch").rows
    assert sorted((row["card"], row["country"]) for row in first) == [("c1", "DE"), ("c1", "FR"), ("c2", "FR")]


def test_scores_are_these() -> None:
    night = {"id": 5, "cents": 90_000, "country": "XX", "at": at("03:00:00")}
    nothing = {"id": 6}
    sent = [*SENT, night, nothing]

    def scores(name: str) -> dict[int, float | None]:
        return {row["id"]: row.get("score") for row in run(example(name), sent, "batch").rows}

    linear = scores("score_sklearn")
    assert linear.pop(6) is None
    assert linear == pytest.approx({1: 0.012166, 2: 0.001356, 3: 0.001582, 4: 0.000655, 5: 0.681302}, abs=2e-6)
    # These two models handle nulls.
    assert scores("score_lightgbm") == pytest.approx(
        {1: 0.009554, 2: 0.002453, 3: 0.002455, 4: 0.002455, 5: 0.422067, 6: 0.040518}, abs=2e-6
    )
    assert scores("score_onnx") == pytest.approx(
        {1: 0.01053, 2: 0.005169, 3: 0.005169, 4: 0.004406, 5: 0.426837, 6: 0.021231}, abs=2e-6
    )


def test_the_models_are_what_the_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(EXAMPLES / "train_models.py"), str(tmp_path)], check=True, timeout=120)
    kept, trained = EXAMPLES / "models", tmp_path
    assert {path.name for path in trained.iterdir()} == {path.name for path in kept.iterdir()}
    rows = np.array([[20_000, 1, 12], [90_000, 3, 3], [np.nan, np.nan, np.nan]], "float32")

    def answers(folder: Path) -> Any:
        parameters = json.loads((folder / "sklearn.json").read_text())
        booster = lgb.Booster(model_file=folder / "lightgbm.txt")
        session = ort.InferenceSession(folder / "pipeline.onnx", providers=["CPUExecutionProvider"])
        (chances,) = session.run(["probabilities"], {"features": rows})
        return [*parameters["coefficients"], parameters["intercept"], *booster.predict(rows), *chances[:, 1]]

    assert answers(trained) == pytest.approx(answers(kept), abs=1e-4)
