from collections.abc import Mapping
from typing import Any

from tailrace.engine import ReaderPosition
from tailrace.errors import BrokerUnreachable
from tailrace.running.positions import Position, read_positions

from .fakes import FakeControl, FakeEndpoint, at


def positions(*readers: ReaderPosition, of: list[FakeEndpoint]) -> list[Position]:
    control: Any = FakeControl()
    control.readers = list(readers)
    endpoints: Any = of
    return read_positions(control, endpoints)


def lags(here: list[Position]) -> dict[str, int | None]:
    return {f"{each.topic}-{each.partition}": each.lag for each in here}


def test_a_position_has_what_its_reader_reports() -> None:
    read = at(
        "payments-0",
        7,
        task=3,
        records=5,
        bytes=90,
        last_record_ms=1700000000123,
        waits_for="downstream",
        waited_ms=250,
    )
    assert positions(read, of=[FakeEndpoint({"payments": [10]})]) == [
        Position(0, "payments", 0, 3, 7, 3, 5, 90, 1700000000123, "downstream", 0.25)
    ]


def test_a_reader_without_a_record_has_no_time() -> None:
    (here,) = positions(at("payments-0", 7), of=[])
    assert (here.records, here.last_record_ms, here.waits_for) == (0, None, "records")


def test_a_partition_that_no_task_reads_waits_for_nothing() -> None:
    (here,) = positions(at("payments-0", 7, is_read=False, waits_for=""), of=[])
    assert here.waits_for is None


def test_they_come_by_topic_and_by_number() -> None:
    readers = [at(f"{topic}-{number}") for topic, number in (("b", 2), ("a", 10), ("b", 1), ("a", 9))]
    assert [(each.topic, each.partition) for each in positions(*readers, of=[])] == [
        ("a", 9), ("a", 10), ("b", 1), ("b", 2),
    ]  # fmt: skip


def test_a_reader_may_be_ahead_of_the_end_that_was_asked_for_before() -> None:
    here = positions(at("payments-0", 12), of=[FakeEndpoint({"payments": [10]})])
    assert lags(here) == {"payments-0": 0}


def test_each_source_is_asked_for_its_own_topics() -> None:
    of = [FakeEndpoint({"payments": [10, 20]}), FakeEndpoint({"refunds": [5]})]
    readers = [at("payments-0", 1), at("payments-1", 20), at("refunds-0", 4, source=1)]
    assert lags(positions(*readers, of=of)) == {"payments-0": 9, "payments-1": 0, "refunds-0": 1}


def test_a_cluster_that_does_not_answer_leaves_the_lag_unknown() -> None:
    silent = FakeEndpoint({"payments": [10]})
    silent.failure = BrokerUnreachable("no answer")
    here = positions(at("payments-0", 1), at("refunds-0", 4, source=1), of=[silent, FakeEndpoint({"refunds": [5]})])
    assert lags(here) == {"payments-0": None, "refunds-0": 1}


def test_a_cluster_that_only_spark_can_ask_has_the_ends_that_the_engine_asked() -> None:
    class ThroughSpark(FakeEndpoint):
        def ends(self, _partitions: Mapping[str, int]) -> None:
            return None

    here = positions(at("payments-0", 1, end=5), of=[ThroughSpark({"payments": [10]})])
    assert lags(here) == {"payments-0": 4}


def test_a_cluster_that_is_silent_is_not_waited_for() -> None:
    silent = FakeEndpoint({"payments": [10]})
    here = positions(at("payments-0", 1, end=5, unanswered_ms=9000), of=[silent])
    assert lags(here) == {"payments-0": None}
    assert silent.asked == 0


def test_a_partition_without_an_end_has_no_lag() -> None:
    here = positions(at("payments-0", 1), at("payments-1", 0, end=None), of=[FakeEndpoint({"payments": [10]})])
    assert lags(here) == {"payments-0": 9, "payments-1": None}


def test_assigned_partitions_have_a_lag_whatever_their_numbers() -> None:
    class Assigned(FakeEndpoint):
        def source_partitions(self) -> dict[str, int]:
            return {"payments": 1}  # one partition is assigned: the third

    here = positions(at("payments-2", 25), of=[Assigned({"payments": [10, 20, 30]})])
    assert lags(here) == {"payments-2": 5}
