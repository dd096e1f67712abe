import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.plan.operator import Operator
from tailrace.plan.slots import Slots, count_slots, fitting_tasks


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


@pytest.mark.parametrize(
    ("slots", "free", "sources", "tasks"),
    [
        (Slots((24,)), 8, 1, 8),
        (Slots((24,)), 8, 3, 2),
        (Slots((24, 24)), 8, 1, 4),
        (Slots((24, 24, 24)), 8, 1, 2),
        (Slots((24, 24, 5), fixed=5, fixed_shuffles=1), 9, 1, 2),  # the query sets the number after one shuffle
        (Slots((24, 24)), 1, 1, 0),
        (Slots((24,)), 0, 1, 0),
        (Slots((2,)), 8, 1, 8),
        (Slots((24,)), 8, 0, 8),  # a source that is not Kafka
    ],
)
def test_as_many_tasks_read_each_source_as_fit_with_those_after_shuffles(
    slots: Slots, free: int, sources: int, tasks: int
) -> None:
    assert fitting_tasks(slots, free, sources, shuffles_follow=True) == tasks


@pytest.mark.parametrize(("free", "tasks"), [(8, 2), (7, 1), (6, 0), (5, -1)])
def test_the_tasks_after_a_shuffle_of_a_saved_state_keep_their_number(free: int, tasks: int) -> None:
    assert fitting_tasks(Slots((24, 6)), free, 1, shuffles_follow=False) == tasks


@given(
    partitions=st.lists(st.integers(1, 50), min_size=1, max_size=4), shuffles=st.integers(0, 3), free=st.integers(0, 99)
)
def test_tasks_that_are_said_to_fit_do_fit(partitions: list[int], shuffles: int, free: int) -> None:
    stages = (sum(partitions),) * (1 + shuffles)
    tasks = fitting_tasks(Slots(stages), free, len(partitions), shuffles_follow=True)
    if tasks > 0:
        assert sum(min(tasks, each) for each in partitions) * (1 + shuffles) <= free


@pytest.mark.parametrize(
    ("slots", "equal"),
    [
        (Slots((8,)), True),
        (Slots((8, 8, 8)), True),
        (Slots((8, 20)), False),
        (Slots((8, 8, 3), fixed=3, fixed_shuffles=1), True),
        (Slots((8, 20, 8), fixed=8, fixed_shuffles=1), False),
    ],
)
def test_shuffles_as_wide_as_the_source_are_recognised(slots: Slots, equal: bool) -> None:
    assert slots.shuffles_equal_source is equal
