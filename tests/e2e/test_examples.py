"""The examples: what they write, and that batch, micro-batch and real time agree on generated records.

``TAILRACE_EXAMPLES`` sets how many inputs are generated for each; `make soak` takes many.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tailrace as tr
from tailrace.runtime.loader import load_pipeline
from tailrace.testing import at, require_equal_modes, run

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1800)]

EXAMPLES = Path(__file__).parents[2] / "examples"
INPUTS = int(os.environ.get("TAILRACE_EXAMPLES", "1"))

STATEFUL = {"totals": ["card"], "per_minute": ["minute", "country"], "sliding": ["since"], "first_seen": []}
"""The columns that name a result of which only the last one counts."""
MORE_TOPICS = {"route": ["large-payments"]}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "payments")

payments = st.fixed_dictionaries(
    {"id": st.integers(0, 50)},
    optional={
        "card": st.sampled_from(["c1", "c2", "c3", "ünïcode \U0001f40b", ""]) | st.none(),
        "cents": st.integers(-(10**6), 10**6) | st.none(),
        "country": st.sampled_from(["DE", "FR", "JP", "XX"]) | st.none() | st.text(max_size=3),
        "tags": st.lists(st.sampled_from(["a", "b"]) | st.none(), max_size=3) | st.none(),
        # Within the watermark's hour: what is later than that is dropped at batch boundaries, which differ.
        "at": st.integers(0, 59 * 60).map(lambda second: at(f"12:{second // 60:02d}:{second % 60:02d}").isoformat()),
    },
)
rows = st.lists(payments | st.sampled_from(["{broken", "[]"]), min_size=20, max_size=80)


def example(name: str) -> tr.Pipeline:
    return load_pipeline(str(EXAMPLES / f"{name}.py"))


def test_every_example_is_listed_and_loads() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert len(NAMES) == 9
    for name in NAMES:
        assert f"`{name}.py`" in listed
        assert example(name).sources[0].topic_names == ("payments",)


@pytest.mark.parametrize("name", NAMES)
def test_batch_micro_batch_and_real_time_agree(name: str) -> None:
    here = example(name)

    @settings(max_examples=INPUTS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
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
    # In batch: that the other modes agree with it is shown above.
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
