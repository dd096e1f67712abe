import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.plan.bound import Bound

Ends = dict[str, dict[int, int]]

PLACES = st.tuples(st.sampled_from(["payments", "refunds"]), st.integers(0, 3))
POSITIONS = st.dictionaries(PLACES, st.integers(0, 20))


def bound(*ends: Ends) -> Bound:
    return Bound(ends)


def progress(*sources: Any) -> dict[str, Any]:
    """A completed batch, as far as Spark's progress tells where its sources ended."""
    return {"batchId": 3, "sources": [{"description": "KafkaV2", "endOffset": source} for source in sources]}


def by_topic(positions: Mapping[tuple[str, int], int]) -> Ends:
    ends: Ends = {}
    for (topic, partition), offset in positions.items():
        ends.setdefault(topic, {})[partition] = offset
    return ends


def in_sparks_words(positions: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    return {
        topic: {str(partition): offset for partition, offset in partitions.items()}
        for topic, partitions in by_topic(positions).items()
    }


def test_the_end_is_reached_where_every_partition_is_there() -> None:
    end = bound({"payments": {0: 5, 1: 7}})
    assert end.is_reached(progress({"payments": {"0": 5, "1": 7}}))
    assert end.is_reached(progress({"payments": {"0": 9, "1": 7}})), "past it is there, too"
    assert not end.is_reached(progress({"payments": {"0": 5, "1": 6}}))


def test_offsets_may_come_as_json_text() -> None:
    end = bound({"payments": {0: 5}})
    assert end.is_reached(progress(json.dumps({"payments": {"0": 5}})))
    assert not end.is_reached(progress(json.dumps({"payments": {"0": 4}})))


@pytest.mark.parametrize("nothing", [None, "null", {}, "{}"])
def test_a_batch_that_says_nothing_of_a_partition_has_not_reached_it(nothing: Any) -> None:
    assert not bound({"payments": {0: 1}}).is_reached(progress(nothing))
    assert bound({"payments": {0: 0}}).is_reached(progress(nothing)), "an empty partition needs no batch"


def test_a_progress_without_sources_has_reached_nothing() -> None:
    assert not bound({"payments": {0: 1}}).is_reached({"batchId": 3})
    assert not bound({"payments": {0: 1}}).is_reached(progress())


def test_a_partition_that_is_missing_holds_the_others_up() -> None:
    end = bound({"payments": {0: 5, 1: 7}, "refunds": {0: 1}})
    assert not end.is_reached(progress({"payments": {"0": 5}, "refunds": {"0": 1}}))
    assert not end.is_reached(progress({"payments": {"0": 5, "1": 7}}))


def test_every_source_must_be_there() -> None:
    end = bound({"payments": {0: 5}}, {"refunds": {0: 3}})
    assert end.is_reached(progress({"payments": {"0": 5}}, json.dumps({"refunds": {"0": 3}})))
    assert not end.is_reached(progress({"payments": {"0": 5}}, {"refunds": {"0": 2}}))
    assert not end.is_reached(progress({"payments": {"0": 4}}, {"refunds": {"0": 3}}))


@pytest.mark.parametrize(("first", "second"), [(5, 4), (4, 5)])
def test_of_two_sources_on_one_topic_the_one_behind_counts(first: int, second: int) -> None:
    end = bound({"payments": {0: 5}}, {"payments": {0: 5}})
    assert not end.is_reached(progress({"payments": {"0": first}}, {"payments": {"0": second}}))
    assert end.is_reached(progress({"payments": {"0": 5}}, {"payments": {"0": 5}}))


def test_topics_that_came_after_the_start_hold_nothing_up() -> None:
    assert bound({"payments": {0: 5}}).is_reached(progress({"payments": {"0": 5, "1": 0}, "payments-new": {"0": 9}}))


def test_nothing_to_read_is_reached_by_any_batch() -> None:
    assert bound({}).is_reached(progress({"payments": {"0": 5}}))
    assert bound().is_reached(progress())


@given(ends=POSITIONS, reached=POSITIONS, text=st.booleans())
def test_the_end_is_reached_exactly_where_no_partition_is_behind(
    ends: dict[tuple[str, int], int], reached: dict[tuple[str, int], int], text: bool
) -> None:
    offsets = in_sparks_words(reached)
    batch = progress(json.dumps(offsets) if text else offsets)
    behind = [place for place, end in ends.items() if reached.get(place, 0) < end]
    assert bound(by_topic(ends)).is_reached(batch) is not bool(behind)


@given(ends=st.lists(POSITIONS, max_size=3), reached=POSITIONS)
def test_several_sources_are_there_when_each_of_them_is(
    ends: list[dict[tuple[str, int], int]], reached: dict[tuple[str, int], int]
) -> None:
    batch = progress(in_sparks_words(reached))
    each = [bound(by_topic(source)).is_reached(batch) for source in ends]
    assert bound(*map(by_topic, ends)).is_reached(batch) is all(each)
