import json
from typing import Any

from tailrace.engine import StageTasks
from tailrace.runtime.flow import PATIENCE_S, Flow, still_partitions

FULL = [StageTasks(4, 4, 0)]
STARVED = [StageTasks(4, 2, 0)]
ALL_STARVED = [StageTasks(4, 0, 0)]


def made(**ends: int) -> Flow:
    """A flow whose broker has records up to these offsets; far more than anybody reads where none is given."""
    return Flow(lambda places: {place: ends.get(place.replace("-", "_"), 1000) for place in places})


def progress(start: Any, end: Any, latest: Any, batch: int = 0) -> dict[str, Any]:
    """As PySpark hands it over: offsets are texts."""
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {"batchId": batch, "sources": [{name: json.dumps(told) for name, told in offsets.items()}]}


def test_tasks_that_all_run_starve_nobody() -> None:
    flow = made()
    assert flow.look(FULL, None, 0.0) is None
    assert flow.look(FULL, None, 100.0) is None
    assert flow.look([], None, 200.0) is None, "between two batches nothing runs"


def test_a_task_may_wait_a_while_for_its_slot_and_no_longer() -> None:
    flow = made()
    assert flow.look(STARVED, None, 10.0) is None
    assert flow.look(STARVED, None, 10.0 + PATIENCE_S - 0.1) is None
    found = flow.look(STARVED, None, 10.0 + PATIENCE_S)
    assert found is not None
    assert found.waiting == 2
    assert "2 tasks cannot get a slot" in found.in_words


def test_a_query_without_any_slot_waits_too() -> None:
    flow = made()
    flow.look(ALL_STARVED, None, 0.0)
    found = flow.look(ALL_STARVED, None, PATIENCE_S)
    assert found is not None
    assert found.waiting == 4


def test_the_marks_of_a_transaction_are_no_records() -> None:
    flow = made(in_0=9)
    ends = {"in": {"0": 9}}
    for batch in range(4):
        assert flow.look(FULL, progress(ends, ends, {"in": {"0": 10}}, batch), float(batch)) is None


def test_a_wait_that_ended_begins_anew() -> None:
    flow = made()
    flow.look(STARVED, None, 0.0)
    flow.look(FULL, None, PATIENCE_S)
    assert flow.look(STARVED, None, PATIENCE_S + 1) is None


def test_partitions_that_stood_still_are_named() -> None:
    flow = made()
    told = progress({"in": {"0": 5, "1": 5}}, {"in": {"0": 9, "1": 5}}, {"in": {"0": 9, "1": 40}})
    flow.look(STARVED, told, 0.0)
    found = flow.look(STARVED, told, PATIENCE_S)
    assert found is not None
    assert found.in_words == "in-1 is not being read"


def test_a_partition_with_records_that_stands_still_twice_is_not_read_whatever_tasks_say() -> None:
    flow = made()
    ends = {"in": {"0": 9, "1": 5}}
    first = progress({"in": {"0": 5, "1": 5}}, ends, {"in": {"0": 9, "1": 40}}, batch=3)
    assert flow.look(FULL, first, 0.0) is None, "its records may have come at the very end"
    assert flow.look(FULL, first, 2.0) is None, "the same batch is no second one"
    found = flow.look(FULL, progress(ends, ends, {"in": {"0": 9, "1": 41}}, batch=4), 4.0)
    assert found is not None
    assert (found.waiting, found.partitions) == (0, ("in-1",))
    read = progress(ends, {"in": {"0": 9, "1": 41}}, {"in": {"0": 9, "1": 41}}, batch=5)
    assert flow.look(FULL, read, 6.0) is None


def test_the_moment_between_two_batches_does_not_end_a_wait() -> None:
    flow = made()
    flow.look(STARVED, None, 0.0)
    assert flow.look([], None, PATIENCE_S) is None
    assert flow.look(STARVED, None, PATIENCE_S + 1) is not None


def test_a_first_batch_that_says_nothing_of_its_start_accuses_nobody() -> None:
    assert still_partitions(progress(None, {"in": {"0": 0}}, {"in": {"0": 9}})) == {}


def test_what_has_nothing_new_does_not_stand_still() -> None:
    assert still_partitions(progress({"in": {"0": 5}}, {"in": {"0": 5}}, {"in": {"0": 5}})) == {}


def test_a_partition_that_no_batch_has_seen_yet_is_not_read() -> None:
    assert still_partitions(progress({"in": {"0": 5}}, {"in": {"0": 9}}, {"in": {"0": 9, "1": 3}})) == {"in-1": 0}


def test_sources_other_than_kafka_say_nothing() -> None:
    assert still_partitions({"sources": [{"startOffset": 5, "endOffset": None, "latestOffset": {"a": 1}}]}) == {}
    assert still_partitions({"sources": [{"latestOffset": "no offsets"}]}) == {}
    assert still_partitions({}) == {}
