from typing import Any

import pytest

from tailrace.errors import DefinitionError, DurationInvalid, OptionRefused
from tailrace.measure.lane import Trigger
from tailrace.measure.options import PROFILES, BenchOptions, caveats, options_of
from tailrace.measure.schedule import Shape
from tailrace.measure.traffic.probe import ByFields
from tailrace.measure.traffic.records import Events, smallest_payload
from tailrace.measure.works import Work

from .fakes import FakeLane


def test_the_article_is_the_published_setting() -> None:
    options = options_of("article", {})
    assert (options.rate, options.payload, options.warmup, options.seconds) == (2000, 128, 15, 60)
    assert (options.checkpoint_every, options.trigger_every, options.boundaries) == ("5m", "500ms", 0)
    assert options.lanes == ("floor", "microbatch", "realtime")
    assert options.rate * options.seconds == 120_000


def test_the_full_profile_keeps_the_rules() -> None:
    options = options_of("full", {})
    assert options.warmup >= 60
    assert options.runs >= 5
    assert options.boundaries >= 3
    assert options.seconds * 1000 >= (options.boundaries + 1) * options.checkpoint_ms, "they do fit into the window"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_names_the_rules_it_breaks(profile: str) -> None:
    options, notes = PROFILES[profile], " ".join(caveats(PROFILES[profile]))
    assert ("warm-up" in notes) == (options.warmup < 60)
    assert ("runs" in notes) == (options.runs < 3)
    assert ("do not show the cost" in notes) == (options.checkpoint_ms > 1000 * options.seconds)


@pytest.mark.parametrize("profile", PROFILES)
def test_options_override_the_profile(profile: str) -> None:
    before = PROFILES[profile].as_settings()
    after = options_of(profile, {"rate": 10, "work": "join", "payload": None}).as_settings()
    assert {name for name in before if before[name] != after[name]} == {"rate_per_s", "work"}
    assert PROFILES[profile].as_settings() == before, "the profile itself stays"


@pytest.mark.parametrize("changed", [{"seconds": 20.0}, {"checkpoint_every": "5m"}])
def test_a_changed_window_needs_no_boundaries(changed: dict[str, Any]) -> None:
    assert options_of("full", changed).boundaries == 0
    assert options_of("full", {"rate": 5}).boundaries == 3
    assert options_of("full", {**changed, "boundaries": 1}).boundaries == 1


@pytest.mark.parametrize(
    ("changed", "what", "fix"),
    [
        ({"payload": 40}, "--payload 40 is too small", f"use --payload {smallest_payload()} or more"),
        ({"checkpoint_every": "4s"}, "--checkpoint-every 4s is below 5 s", "use --checkpoint-every 5s or more"),
        ({"work": "sort"}, "invalid --work sort", "use one of: stateless, aggregate"),
        ({"shape": "square"}, "invalid --shape square", "use one of: constant, poisson, burst, step"),
    ],
)
def test_invalid_options_are_refused_with_a_fix(changed: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        options_of("quick", changed)
    assert refused.value.what == what
    assert refused.value.fix.startswith(fix)


@pytest.mark.parametrize("changed", [{"checkpoint_every": "soon"}, {"trigger_every": "-1s"}, {"trigger_every": "5"}])
def test_an_invalid_duration_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(DurationInvalid) as refused:
        options_of("quick", changed)
    assert isinstance(refused.value, DefinitionError)


def test_an_unknown_profile_is_refused_with_the_known_names() -> None:
    with pytest.raises(OptionRefused) as refused:
        options_of("slow", {})
    assert (refused.value.what, refused.value.fix) == ("there is no profile 'slow'", "use one of: quick, article, full")


def test_the_smallest_payload_is_accepted() -> None:
    assert BenchOptions(payload=smallest_payload()).payload == smallest_payload()


def test_a_plan_has_the_load_and_the_window() -> None:
    plan = BenchOptions(rate=50, seconds=7, warmup=3, payload=200, shape="poisson", burst=9).plan()
    assert (plan.seconds, plan.warmup_s) == (7, 3)
    assert plan.known_by == ByFields("id", "sent_ns")
    flow = plan.flow
    assert (flow.records, flow.rate_per_s, flow.shape, flow.burst) == (Events(200), 50, Shape.POISSON, 9)
    assert BenchOptions(rate=50).plan(8000).flow.rate_per_s == 8000


def test_real_time_needs_boundaries_and_micro_batch_has_a_trigger() -> None:
    options = BenchOptions(boundaries=3, trigger_every="100ms", checkpoint_every="15s")
    triggers = {"realtime-stock": Trigger.REALTIME, "microbatch": Trigger.MICROBATCH, "flink": None}
    fast, slow, other = (options.cell(FakeLane(name, name, trigger=each)) for name, each in triggers.items())
    assert [cell.needs_boundaries for cell in (fast, slow, other)] == [3, 0, 0]
    assert [cell.title for cell in (fast, slow, other)] == ["realtime-stock", "microbatch, 100ms", "flink"]
    assert [cell.settings for cell in (fast, slow, other)] == [{}, {"trigger": "100ms"}, {}]
    assert {(cell.checkpoint_every_s, cell.trigger_every_ms) for cell in (fast, slow, other)} == {(15.0, 100)}


def test_a_cell_may_override_work_rate_and_key() -> None:
    cell = BenchOptions().cell(FakeLane("flink"), work=Work.PYTHON, rate=8000, key="flink python 8000")
    assert (cell.work, cell.plan.flow.rate_per_s, cell.key) == (Work.PYTHON, 8000, "flink python 8000")
    assert BenchOptions(work="join").cell(FakeLane("flink")).work is Work.JOIN
    assert BenchOptions().cell(FakeLane("flink")).key == "flink"


def test_names_of_settings_have_units() -> None:
    settings = BenchOptions().as_settings()
    assert {"rate_per_s", "warmup_s", "payload_bytes", "seconds", "partitions", "runs", "shape"} <= settings.keys()
    assert not {"rate", "warmup", "payload"} & settings.keys()
