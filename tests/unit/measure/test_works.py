"""What each work's results must be. That the engines make them so is for tests with engines."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.measure.traffic.records import event
from tailrace.measure.works import LEVELS, Work, count_wrong, transform_of

SENT = list(range(-200, 3000))
MINUTE_MS = 60_000

Output = dict[str, Any]


def right_outputs(work: Work) -> list[Output]:
    """What an engine that gives one result for each record makes of them."""
    counts: dict[Any, int] = defaultdict(int)
    totals: dict[str, float] = defaultdict(float)
    outputs = []
    for number in SENT:
        content = event(number)
        made: Output = {"id": number, "sent_ns": number, "key": content.key}
        match work:
            case Work.STATELESS:
                made["doubled"] = content.amount * 2
            case Work.PYTHON:
                made["score"] = min(1.0, math.log1p(content.amount) / 10)
            case Work.JOIN:
                made["level"] = int(content.key[2:]) % LEVELS
            case Work.AGGREGATE:
                counts[content.key] += 1
                totals[content.key] += content.amount
                made |= {"count": counts[content.key], "total": totals[content.key]}
            case Work.WINDOW:
                minute = number // 1000 * MINUTE_MS
                counts[content.key, minute] += 1
                made |= {"minute": minute, "count": counts[content.key, minute]}
        outputs.append(made)
    return outputs


@pytest.mark.parametrize("work", Work)
def test_right_results_are_right_in_any_order(work: Work) -> None:
    outputs = right_outputs(work)
    assert count_wrong(work, outputs, SENT) == 0
    assert count_wrong(work, outputs[::-1], SENT) == 0


@pytest.mark.parametrize("work", Work)
def test_every_work_has_a_function_of_its_own(work: Work) -> None:
    assert callable(transform_of(work))
    assert len({transform_of(each) for each in Work}) == len(Work)


FIELDS = {
    Work.STATELESS: "doubled", Work.PYTHON: "score", Work.JOIN: "level", Work.DEDUPE: "key", Work.AGGREGATE: "total",
}  # fmt: skip


@pytest.mark.parametrize("work", FIELDS)
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda value: value + "!" if isinstance(value, str) else value + 1, id="another"),
        pytest.param(lambda _: None, id="null"),
        pytest.param(lambda _: "text", id="text"),
        pytest.param(lambda _: math.nan, id="NaN"),
    ],
)
def test_one_wrong_value_is_found_whatever_it_is(work: Work, harm: Callable[[Any], Any]) -> None:
    outputs = right_outputs(work)
    outputs[-1][FIELDS[work]] = harm(outputs[-1][FIELDS[work]])
    assert count_wrong(work, outputs, SENT) == 1


@pytest.mark.parametrize("work", FIELDS)
def test_a_value_that_is_missing_is_wrong_and_no_crash(work: Work) -> None:
    """An engine leaves a null column out of its JSON."""
    outputs = right_outputs(work)
    del outputs[-1][FIELDS[work]]
    assert count_wrong(work, outputs, SENT) == 1


def test_a_record_let_through_twice_is_found() -> None:
    outputs = right_outputs(Work.DEDUPE)
    assert count_wrong(Work.DEDUPE, [*outputs, outputs[5], outputs[5], outputs[7]], SENT) == 3


def test_a_key_that_counts_a_record_twice_or_never_is_found() -> None:
    outputs = right_outputs(Work.AGGREGATE)
    more = {**outputs[-1], "count": outputs[-1]["count"] + 1}
    assert count_wrong(Work.AGGREGATE, [*outputs, more], SENT) == 1
    assert count_wrong(Work.AGGREGATE, outputs[:-1], SENT) == 1
    key = outputs[-1]["key"]
    assert count_wrong(Work.AGGREGATE, [each for each in outputs if each["key"] != key], SENT) == 1
    del outputs[-1]["count"]
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 1


def test_an_aggregate_that_merges_updates_is_right_if_its_last_ones_are() -> None:
    last = {each["key"]: each for each in right_outputs(Work.AGGREGATE)}
    assert count_wrong(Work.AGGREGATE, list(last.values()), SENT) == 0


def test_a_total_may_differ_by_the_order_of_its_sum_and_no_more() -> None:
    outputs = right_outputs(Work.AGGREGATE)
    outputs[-1]["total"] += 0.001
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 0
    outputs[-1]["total"] += 0.02
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 1


def test_a_window_that_counts_wrong_is_found_also_where_another_makes_up_for_it() -> None:
    outputs = right_outputs(Work.WINDOW)
    one, other = outputs[-1], next(each for each in reversed(outputs) if each["key"] != outputs[-1]["key"])
    one["count"] += 1
    assert count_wrong(Work.WINDOW, outputs, SENT) == 1
    other["count"] -= 1
    assert count_wrong(Work.WINDOW, outputs, SENT) == 2
    assert count_wrong(Work.WINDOW, [], SENT) == len(SENT)
    one["count"] -= 1
    other["count"] += 1
    stranger = {"id": 1, "sent_ns": 1, "key": "k-9999", "minute": 0, "count": 4}
    assert count_wrong(Work.WINDOW, [*outputs, stranger], SENT) == 4


def test_only_counts_can_be_merged() -> None:
    assert {work for work in Work if work.merges} == {Work.AGGREGATE, Work.WINDOW}
