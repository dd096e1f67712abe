import json
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.engine import StageTasks
from tailrace.running.flow import (
    PATIENCE_S,
    POLLS,
    RECOVERY_S,
    SETTLED_S,
    STARVED_S,
    STILL_S,
    SUBMITTED_S,
    TASK_S,
    Flow,
    Starved,
    still_partitions,
)
from tailrace.running.waits import SourcePartition

from .fakes import at

FULL = [StageTasks(4, 4, 0, 0, 60.0)]
STARVED = [StageTasks(4, 2, 0, 0, 60.0)]
ALL_STARVED = [StageTasks(4, 0, 0, 0, 60.0)]


def new_flow(**ends: int) -> Flow:
    """A flow whose broker has records up to these offsets; far more than anybody reads if none is given."""

    def visible(source: int, partitions: Sequence[str]) -> Mapping[str, int]:
        assert source == 0
        return {each: ends.get(each.replace("-", "_"), 1000) for each in partitions}

    return Flow(visible)


def poll(flow: Flow, stages: Sequence[StageTasks], latest: Mapping[str, Any] | None, now: float) -> Starved | None:
    """What is starved for too long; the watch polls more often than these tests."""
    for _ in range(POLLS):
        starved = flow.update(stages, latest, None, now)
    return starved if starved is not None and starved.lasts else None


def progress(start: Any, end: Any, latest: Any, batch: int = 0) -> dict[str, Any]:
    """As PySpark hands it over: offsets are texts."""
    offsets = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {"batchId": batch, "sources": [{name: json.dumps(by_topic) for name, by_topic in offsets.items()}]}


def test_tasks_that_all_run_report_no_starvation() -> None:
    flow = new_flow()
    assert poll(flow, FULL, None, 0.0) is None
    assert poll(flow, FULL, None, 100.0) is None
    assert poll(flow, [], None, 200.0) is None, "between two batches nothing runs"


def test_a_task_may_wait_a_while_for_its_slot_and_no_longer() -> None:
    flow = new_flow()
    assert poll(flow, STARVED, None, 10.0) is None
    assert poll(flow, STARVED, None, 10.0 + PATIENCE_S - 0.1) is None
    starved = poll(flow, STARVED, None, 10.0 + PATIENCE_S)
    assert starved is not None
    assert starved.waiting == 2
    assert "2 tasks cannot get a slot" in starved.in_words


def test_a_query_without_any_slot_waits_too() -> None:
    flow = new_flow()
    poll(flow, ALL_STARVED, None, 0.0)
    starved = poll(flow, ALL_STARVED, None, PATIENCE_S)
    assert starved is not None
    assert starved.waiting == 4


def test_the_marks_of_a_transaction_are_no_records() -> None:
    flow = new_flow(in_0=9)
    ends = {"in": {"0": 9}}
    for batch in range(4):
        assert poll(flow, FULL, progress(ends, ends, {"in": {"0": 10}}, batch), batch * STILL_S) is None


def test_a_wait_that_ended_begins_anew() -> None:
    flow = new_flow()
    poll(flow, STARVED, None, 0.0)
    poll(flow, FULL, None, PATIENCE_S)
    assert poll(flow, STARVED, None, PATIENCE_S + 1) is None


def test_partitions_that_stood_still_are_named() -> None:
    flow = new_flow()
    latest = progress({"in": {"0": 5, "1": 5}}, {"in": {"0": 9, "1": 5}}, {"in": {"0": 9, "1": 40}})
    poll(flow, STARVED, latest, 0.0)
    starved = poll(flow, STARVED, latest, PATIENCE_S)
    assert starved is not None
    assert starved.in_words == "in-1 is not being read"


ENDS = {"in": {"0": 9, "1": 5}}


def still(batch: int) -> dict[str, Any]:
    """A batch that read nothing of the records in a partition."""
    return progress(ENDS, ENDS, {"in": {"0": 9, "1": 41}}, batch)


def test_a_partition_with_records_that_stands_still_is_not_read_whatever_tasks_say() -> None:
    flow = new_flow()
    poll(flow, FULL, None, 0.0)
    assert poll(flow, FULL, still(3), 100.0) is None, "its records may have come at the very end"
    assert poll(flow, FULL, still(3), 100.0 + STILL_S) is None, "the same batch is no second one"
    starved = poll(flow, FULL, still(4), 101.0 + STILL_S)
    assert starved is not None
    assert (starved.waiting, starved.partitions) == (0, ("in-1",))
    read = progress(ENDS, {"in": {"0": 9, "1": 41}}, {"in": {"0": 9, "1": 41}}, batch=5)
    assert poll(flow, FULL, read, 106.0) is None


def test_two_batches_within_a_moment_accuse_no_partition() -> None:
    flow = new_flow()
    for batch in range(4):
        assert poll(flow, FULL, still(batch), 0.5 * STILL_S * (batch / 4)) is None


def test_batches_whose_tasks_hardly_ran_accuse_no_partition() -> None:
    flow = new_flow()
    for number in range(200):  # as on a busy machine, with a batch every second
        running = [StageTasks(4, 4, 0, 0, TASK_S - 0.5)] if number % 2 else []
        assert poll(flow, running, still(number), float(number)) is None
    poll(flow, FULL, still(199), 200.0)
    poll(flow, FULL, still(200), 201.0)
    assert poll(flow, FULL, still(201), 201.0 + STILL_S) is not None, "those that ran longer do"


def test_tasks_that_are_about_to_start_do_not_wait() -> None:
    flow = new_flow()
    starting = [StageTasks(4, 2, 0, 0, SETTLED_S / 2)]
    for second in range(60):  # batches of a second, each seen as it starts
        assert poll(flow, starting, None, float(second)) is None
    submitted = [StageTasks(4, 0, 0, 0, SUBMITTED_S / 2)]
    for second in range(60, 120):
        assert poll(flow, submitted, None, float(second)) is None


def test_tasks_of_a_lost_executor_may_wait_until_it_is_replaced() -> None:
    flow = new_flow()
    lost = [StageTasks(4, 2, 0, 2, 60.0)]
    poll(flow, lost, None, 0.0)
    assert poll(flow, lost, None, RECOVERY_S - 1) is None
    assert poll(flow, FULL, None, RECOVERY_S) is None
    poll(flow, STARVED, None, RECOVERY_S + 1)
    assert poll(flow, STARVED, None, RECOVERY_S + 2 + PATIENCE_S) is None, "the next batch waits for it, too"
    flow = new_flow()
    poll(flow, lost, None, 0.0)
    assert poll(flow, lost, None, RECOVERY_S) is not None, "Spark does not recover"


def test_partitions_of_the_same_name_on_two_clusters_are_distinguished() -> None:
    offsets = {name: json.dumps({"in": {"0": 5}}) for name in ("startOffset", "endOffset")}
    sources = [{**offsets, "latestOffset": json.dumps({"in": {"0": 9}})} for _ in range(2)]
    asked: list[tuple[int, list[str]]] = []

    def visible(source: int, partitions: Sequence[str]) -> Mapping[str, int]:
        asked.append((source, list(partitions)))
        return {"in-0": 5 if source == 0 else 9}  # the first has a marker of a transaction, the second records

    flow = Flow(visible)
    for batch in range(3):
        starved = poll(flow, FULL, {"batchId": batch, "sources": sources}, batch * STILL_S)
    assert asked == [(0, ["in-0"]), (1, ["in-0"])]
    assert starved is not None
    assert starved.partitions == ("in-0",)


def test_the_moment_between_two_batches_does_not_end_a_wait() -> None:
    flow = new_flow()
    poll(flow, STARVED, None, 0.0)
    assert poll(flow, [], None, PATIENCE_S) is None
    assert poll(flow, STARVED, None, PATIENCE_S + 1) is not None


def test_tasks_that_have_waited_too_long_are_starved_until_all_have_a_slot() -> None:
    flow = new_flow()
    poll(flow, STARVED, None, 0.0)
    starved = poll(flow, STARVED, None, PATIENCE_S)
    assert starved is not None
    assert poll(flow, [], None, PATIENCE_S + 1) == starved, "between two batches"
    assert poll(flow, [StageTasks(4, 2, 0, 0, 0.0)], None, PATIENCE_S + 2) == starved, "as the next one starts"
    assert poll(flow, FULL, None, PATIENCE_S + 3) is None


def test_a_first_batch_that_has_no_start_offsets_reports_no_starvation() -> None:
    assert still_partitions(progress(None, {"in": {"0": 0}}, {"in": {"0": 9}})) == {}


def test_what_has_nothing_new_does_not_stand_still() -> None:
    assert still_partitions(progress({"in": {"0": 5}}, {"in": {"0": 5}}, {"in": {"0": 5}})) == {}


def test_a_partition_that_no_batch_has_seen_yet_is_not_read() -> None:
    assert still_partitions(progress({"in": {"0": 5}}, {"in": {"0": 9}}, {"in": {"0": 9, "1": 3}})) == {
        SourcePartition(0, "in-1"): 0
    }


def test_sources_other_than_kafka_say_nothing() -> None:
    assert still_partitions({"sources": [{"startOffset": 5, "endOffset": None, "latestOffset": {"a": 1}}]}) == {}
    assert still_partitions({"sources": [{"latestOffset": "no offsets"}]}) == {}
    assert still_partitions({}) == {}


def test_tasks_without_a_slot_are_named_before_the_query_has_to_end() -> None:
    flow = new_flow()
    readers = [at("in-0"), at("in-1", is_read=False, task=1)]
    seen = [flow.update(STARVED, None, readers, 100.0 + second) for second in range(12)]
    first = next(number for number, each in enumerate(seen) if each is not None)
    assert first == STARVED_S
    assert [each.partitions for each in seen[first:] if each is not None] == [("in-1",)] * (12 - first)
    assert [each.lasts for each in seen[first:] if each is not None] == [False] * (10 - first) + [True, True]


def test_one_late_poll_reports_no_starvation() -> None:
    flow = new_flow()
    assert flow.update(STARVED, None, None, 0.0) is None
    assert flow.update(STARVED, None, None, 60.0) is None, "the machine slept between the two"


def test_a_task_that_reads_has_a_slot_whatever_spark_says() -> None:
    flow = new_flow()
    shared = [at("in-0"), at("in-1", task=1), at("in-2"), at("in-3", task=1)]
    late = [StageTasks(2, 1, 0, 0, 60.0)]
    assert [flow.update(late, None, shared, float(second)) for second in range(20)] == [None] * 20
    with_shuffle = [*late, StageTasks(4, 2, 0, 0, 60.0)]
    starved = [flow.update(with_shuffle, None, shared, float(second)) for second in range(20, 40)][-1]
    assert starved is not None
    assert (starved.waiting, starved.partitions) == (2, ()), "the tasks after the shuffle have none"


def test_sparks_progress_is_not_asked_where_readers_report() -> None:
    flow = new_flow()
    for batch in range(4):
        assert flow.update(FULL, still(batch), [at("in-0"), at("in-1")], batch * STILL_S) is None
