import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.plan.operator import Operator
from tailrace.plan.slots import count_slots


def leaf(name: str = "StreamingRelation kafka") -> Operator:
    return Operator(name, None, ())


def node(name: str, *children: Operator) -> Operator:
    return Operator(name, None, children)


def exchange(partitions: int, *children: Operator) -> Operator:
    return Operator("Exchange", partitions, children)


def test_a_query_without_a_shuffle_needs_a_slot_for_each_source_partition() -> None:
    slots = count_slots(node("WriteToDataSourceV2", node("Project", leaf())), 3)
    assert (slots.stages, slots.required, slots.formula) == ((3,), 3, "3")


def test_stages_come_source_first() -> None:
    plan = node("Write", exchange(5, node("StateStoreSave", exchange(4, node("Project", leaf())))))
    slots = count_slots(plan, 2)
    assert slots.stages == (2, 4, 5)
    assert slots.formula == "2 + 4 + 5 = 11"


@pytest.mark.parametrize("name", ["StreamingRelation", "StreamingRelationV2", "RealTimeStreamScan", "MicroBatchScan x"])
def test_a_shuffle_above_any_kind_of_stream_counts(name: str) -> None:
    assert count_slots(exchange(7, leaf(name)), 1).stages == (1, 7)


def test_a_shuffle_of_a_static_table_does_not_count() -> None:
    join = node("BroadcastHashJoin", exchange(4, leaf()), exchange(200, leaf("Scan parquet")))
    assert count_slots(join, 2).stages == (2, 4)


def test_both_sides_of_a_join_of_streams_count() -> None:
    join = node("StreamingSymmetricHashJoin", exchange(4, leaf()), exchange(4, leaf()))
    assert count_slots(join, 6).required == 14


@given(source=st.integers(1, 500), shuffles=st.lists(st.integers(1, 500), max_size=6))
def test_all_tasks_of_all_stages_are_summed(source: int, shuffles: list[int]) -> None:
    plan = leaf()
    for partitions in shuffles:
        plan = node("HashAggregate", exchange(partitions, plan))
    slots = count_slots(plan, source)
    assert slots.stages == (source, *shuffles)
    assert slots.required == source + sum(shuffles)
    total = f" = {slots.required}" if shuffles else ""
    assert slots.formula == " + ".join(map(str, [source, *shuffles])) + total
