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
        output: Output = {"id": number, "sent_ns": number, "key": content.key}
        match work:
            case Work.STATELESS:
                output["doubled"] = content.amount * 2
            case Work.PYTHON:
                output["score"] = min(1.0, math.log1p(content.amount) / 10)
            case Work.JOIN:
                output["level"] = int(content.key[2:]) % LEVELS
            case Work.AGGREGATE:
                counts[content.key] += 1
                totals[content.key] += content.amount
                output |= {"count": counts[content.key], "total": totals[content.key]}
            case Work.WINDOW:
                minute = number // 1000 * MINUTE_MS
                counts[content.key, minute] += 1
                output |= {"minute": minute, "count": counts[content.key, minute]}
        outputs.append(output)
    return outputs


@pytest.mark.parametrize("work", Work)
def test_correct_results_are_accepted_in_any_order(work: Work) -> None:
    outputs = right_outputs(work)
    assert count_wrong(work, outputs, SENT) == 0
    assert count_wrong(work, outputs[::-1], SENT) == 0


@pytest.mark.parametrize("work", Work)
def test_every_work_has_its_own_function(work: Work) -> None:
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
def test_one_wrong_value_is_counted(work: Work, harm: Callable[[Any], Any]) -> None:
    outputs = right_outputs(work)
    outputs[-1][FIELDS[work]] = harm(outputs[-1][FIELDS[work]])
    assert count_wrong(work, outputs, SENT) == 1


@pytest.mark.parametrize("work", FIELDS)
def test_a_missing_value_is_wrong(work: Work) -> None:
    """An engine leaves a null column out of its JSON."""
    outputs = right_outputs(work)
    del outputs[-1][FIELDS[work]]
    assert count_wrong(work, outputs, SENT) == 1


def test_a_duplicate_is_counted() -> None:
    outputs = right_outputs(Work.DEDUPE)
    assert count_wrong(Work.DEDUPE, [*outputs, outputs[5], outputs[5], outputs[7]], SENT) == 3


def test_a_key_with_a_wrong_count_is_counted() -> None:
    outputs = right_outputs(Work.AGGREGATE)
    more = {**outputs[-1], "count": outputs[-1]["count"] + 1}
    assert count_wrong(Work.AGGREGATE, [*outputs, more], SENT) == 1
    assert count_wrong(Work.AGGREGATE, outputs[:-1], SENT) == 1
    key = outputs[-1]["key"]
    assert count_wrong(Work.AGGREGATE, [each for each in outputs if each["key"] != key], SENT) == 1
    del outputs[-1]["count"]
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 1


def test_a_merged_aggregate_is_judged_by_its_last_updates() -> None:
    last = {each["key"]: each for each in right_outputs(Work.AGGREGATE)}
    assert count_wrong(Work.AGGREGATE, list(last.values()), SENT) == 0


def test_a_total_may_differ_only_by_rounding() -> None:
    outputs = right_outputs(Work.AGGREGATE)
    outputs[-1]["total"] += 0.001
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 0
    outputs[-1]["total"] += 0.02
    assert count_wrong(Work.AGGREGATE, outputs, SENT) == 1


def test_a_wrong_window_is_counted_even_if_another_compensates() -> None:
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
