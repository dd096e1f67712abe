"""What a start says of the results that exist, and when it refuses."""

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace import engine
from tailrace.engine import Resumed
from tailrace.errors import DeliveryRefused
from tailrace.plan.delivery import DeliveryPlan
from tailrace.running.delivering import open_delivery

EXACT = DeliveryPlan(keeps_progress=True, effectively_once=True, fingerprint="f")
WEAKER = DeliveryPlan(keeps_progress=True, effectively_once=False)
ONCE_ONLY = DeliveryPlan(keeps_progress=False, effectively_once=True)
NOTHING = DeliveryPlan(keeps_progress=False, effectively_once=False)


def left(**more: Any) -> Resumed:
    """A known end of the last run, with changes."""
    facts = {
        "knows_results": True,
        "is_closed": False,
        "fingerprint": "f",
        "advanced": 0,
        "unused": "",
        "is_fresh": False,
    }
    return Resumed(**{**facts, **more}, jvm=None)


class FakeDelivery:
    """Stands for the engine's: what it was given, and what it finds."""

    guarded = 0
    repeated = 0
    unreadable = ""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.given, self.options = given, options
        self.is_closed = False
        opened.append(self)

    def close(self) -> None:
        self.is_closed = True


opened: list[FakeDelivery] = []


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    opened.clear()
    monkeypatch.setattr(engine, "Delivery", FakeDelivery)


def start(resumed: Resumed | None, plan: DeliveryPlan = EXACT, *, wanted: bool = False, **parts: Any) -> list[str]:
    """Open the delivery of a start; return what it announces."""
    prepared: Any = SimpleNamespace(
        built=SimpleNamespace(frame=SimpleNamespace(sparkSession="spark"), outputs=("out", "dead"), uncontrolled=""),
        delivery=plan,
        resumed=resumed,
        query=SimpleNamespace(name="q", sink=SimpleNamespace(options={"topic": "out"}), wants_effectively_once=wanted),
        checkpoint=SimpleNamespace(location="/c"),
        options=SimpleNamespace(progress_every_ms=500),
    )
    for name, value in parts.items():
        setattr(prepared, name, value)
    said: list[str] = []
    open_delivery(prepared, said.append)
    return said


def test_the_engine_gets_what_it_needs() -> None:
    resumed = left()
    assert start(resumed) == []
    (delivery,) = opened
    assert delivery.given == ("spark", "/c", {"topic": "out"}, ("out", "dead"), resumed)
    assert delivery.options == {"fingerprint": "f", "once": True, "every_ms": 500}
    assert not delivery.is_closed


@pytest.mark.parametrize(("plan", "once", "every_ms"), [(WEAKER, False, 500), (ONCE_ONLY, True, 0)])
def test_a_plan_that_allows_only_one_of_both(plan: DeliveryPlan, once: bool, every_ms: int) -> None:
    assert start(left(), plan) == []
    (delivery,) = opened
    assert (delivery.options["once"], delivery.options["every_ms"]) == (once, every_ms)


@pytest.mark.parametrize("missing", ["plan", "sink", "control", "frame"])
def test_a_query_that_keeps_no_notes(missing: str) -> None:
    query = SimpleNamespace(name="q", sink=None, wants_effectively_once=False)
    parts: dict[str, Any] = {
        "plan": {"delivery": NOTHING},
        "sink": {"query": query},
        "control": {"built": SimpleNamespace(uncontrolled="a rate source")},
        "frame": {"built": None},
    }
    assert start(left(), **parts[missing]) == []
    assert start(None) == [], "a dry run"
    assert opened == []


def test_what_was_done_after_the_checkpoint_is_said_in_any_case() -> None:
    line = "The last run had finished 1,234 records after its last checkpoint."
    assert start(left(advanced=1234)) == [line]
    assert start(left(advanced=1234), NOTHING) == [line]
    assert start(left(advanced=1), WEAKER) == [line.replace("1,234 records", "1 record")]


def test_results_that_exist_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDelivery, "guarded", 1500)
    assert start(left(), wanted=True) == ["1,500 results after the last run's note exist and will not be repeated."]


def test_changed_code_says_how_many_results_may_be_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDelivery, "repeated", 1)
    expected = "The pipeline has changed since the last run: 1 result after its last note may be written again."
    assert start(left()) == [expected]
    assert start(left(), wanted=True) == [expected], "the user has changed it, and asked for exactly what follows"


UNKNOWN = [
    ({"knows_results": False}, "", "the last run kept no note of them"),
    ({"knows_results": False, "unused": "the note is torn"}, "", "the note is torn"),
    ({}, "topic out: this user has no right to read it", "topic out: this user has no right to read it"),
    ({"knows_results": False}, "topic out: gone", "topic out: gone"),
]


@pytest.mark.parametrize(("facts", "unreadable", "why"), UNKNOWN)
def test_results_that_are_unknown(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], unreadable: str, why: str
) -> None:
    monkeypatch.setattr(FakeDelivery, "unreadable", unreadable)
    assert start(left(**facts)) == [f"Results after the last checkpoint may be written again: {why}."]
    opened.clear()
    with pytest.raises(DeliveryRefused, match="query 'q' cannot tell which results") as refused:
        start(left(**facts), wanted=True)
    assert refused.value.why == why
    assert "--delivery effectively-once" in refused.value.fix
    assert opened[0].is_closed, "the run does not start"


@pytest.mark.parametrize("facts", [{"is_fresh": True}, {"is_closed": True}])
def test_a_first_run_and_a_saved_one_have_no_unknown_results(facts: dict[str, Any]) -> None:
    assert start(left(knows_results=False, **facts), wanted=True) == []


@pytest.mark.parametrize("plan", [EXACT, WEAKER])
def test_an_unused_note_is_named_once(plan: DeliveryPlan) -> None:
    assert start(left(unused="batch 3 differs"), plan) == [
        "The progress since the last checkpoint is not used: batch 3 differs."
    ]


def test_at_least_once_says_nothing_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeDelivery, "unreadable", "topic out: gone")
    assert start(left(knows_results=False), WEAKER) == []
