from typing import Any

from tailrace.errors import BrokerUnreachable
from tailrace.running.positions import Position, read_positions

from .fakes import FakeControl, FakeEndpoint


def reader(topic: str, partition: int, offset: int, **more: Any) -> dict[str, Any]:
    counts = {"records": 0, "bytes": 0, "last_record_ms": 0, "waits_for_records": True}
    return {"source": 0, "topic": topic, "partition": partition, "offset": offset, **counts, **more}


def positions(*readers: dict[str, Any], of: list[FakeEndpoint]) -> list[Position]:
    control: Any = FakeControl()
    control.readers = list(readers)
    endpoints: Any = of
    return read_positions(control, endpoints)


def lags(found: list[Position]) -> dict[str, int | None]:
    return {f"{each.topic}-{each.partition}": each.lag for each in found}


def test_a_position_has_what_its_reader_reports() -> None:
    read = reader("payments", 0, 7, records=5, bytes=90, last_record_ms=1700000000123, waits_for_records=False)
    assert positions(read, of=[FakeEndpoint({"payments": [10]})]) == [
        Position(0, "payments", 0, 7, 3, 5, 90, 1700000000123, waits_for_records=False)
    ]


def test_a_reader_without_a_record_has_no_time() -> None:
    (found,) = positions(reader("payments", 0, 7), of=[])
    assert (found.records, found.last_record_ms, found.waits_for_records) == (0, None, True)


def test_they_come_by_topic_and_by_number() -> None:
    readers = [reader(topic, number, 0) for topic, number in (("b", 2), ("a", 10), ("b", 1), ("a", 9))]
    assert [(each.topic, each.partition) for each in positions(*readers, of=[])] == [
        ("a", 9), ("a", 10), ("b", 1), ("b", 2),
    ]  # fmt: skip


def test_a_reader_may_be_ahead_of_the_end_that_was_asked_for_before() -> None:
    found = positions(reader("payments", 0, 12), of=[FakeEndpoint({"payments": [10]})])
    assert lags(found) == {"payments-0": 0}


def test_each_source_is_asked_for_its_own_topics() -> None:
    of = [FakeEndpoint({"payments": [10, 20]}), FakeEndpoint({"refunds": [5]})]
    readers = [reader("payments", 0, 1), reader("payments", 1, 20), reader("refunds", 0, 4, source=1)]
    assert lags(positions(*readers, of=of)) == {"payments-0": 9, "payments-1": 0, "refunds-0": 1}


def test_a_cluster_that_does_not_answer_leaves_the_lag_unknown() -> None:
    silent = FakeEndpoint({"payments": [10]})
    silent.failure = BrokerUnreachable("no answer")
    found = positions(
        reader("payments", 0, 1), reader("refunds", 0, 4, source=1), of=[silent, FakeEndpoint({"refunds": [5]})]
    )
    assert lags(found) == {"payments-0": None, "refunds-0": 1}


def test_a_partition_without_an_end_has_no_lag() -> None:
    found = positions(reader("payments", 0, 1), reader("payments", 1, 0), of=[FakeEndpoint({"payments": [10]})])
    assert lags(found) == {"payments-0": 9, "payments-1": None}


def test_assigned_partitions_have_a_lag_whatever_their_numbers() -> None:
    class Assigned(FakeEndpoint):
        def source_partitions(self) -> dict[str, int]:
            return {"payments": 1}  # one partition is assigned: the third

    found = positions(reader("payments", 2, 25), of=[Assigned({"payments": [10, 20, 30]})])
    assert lags(found) == {"payments-2": 5}
