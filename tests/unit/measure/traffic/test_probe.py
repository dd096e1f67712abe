"""The process that reads, with a consumer made of a list. Real probes: tests/e2e."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tailrace.measure.traffic import probe
from tailrace.measure.traffic.probe import _Reader, origin_number, take_arrivals

from .fakes import FakeOrders

EOF = KafkaError._PARTITION_EOF


class FakeMessage:
    """A record, or the news that a partition has been read to its end."""

    def __init__(
        self,
        value: Any = None,
        *,
        partition: int = 0,
        offset: int = 0,
        error: int | None = None,
        headers: dict[str, bytes] | None = None,
    ) -> None:
        self._value = value if isinstance(value, bytes) else json.dumps(value).encode()
        self._partition, self._offset, self._headers = partition, offset, headers
        self._error = KafkaError(error) if error is not None else None

    def value(self) -> bytes:
        return self._value

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self._headers.items()) if self._headers is not None else None


class FakeConsumer:
    """Gives what a test put into it, then nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.coming: list[FakeMessage] = []
        self.assigned: list[Any] = []

    def assign(self, places: list[Any]) -> None:
        self.assigned = places

    def poll(self, _timeout_s: float) -> FakeMessage | None:
        return self.coming.pop(0) if self.coming else None


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probe, "Consumer", FakeConsumer)
    monkeypatch.setattr(probe, "_REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def consumer_of(run: _Reader) -> FakeConsumer:
    consumer: Any = run.consumer
    assert isinstance(consumer, FakeConsumer)
    return consumer


def reader(
    *coming: FakeMessage,
    partitions: int = 1,
    fields: list[str] | None = None,
    orders: list[dict[str, Any]] | None = None,
) -> tuple[_Reader, FakeOrders]:
    given = FakeOrders(
        {
            "client": {"bootstrap.servers": "b:1"},
            "topic": "out",
            "partitions": partitions,
            "clock_offset_ns": 0,
            "fields": fields,
        },
        orders,
    )
    reading = _Reader(given)
    consumer_of(reading).coming = list(coming)
    return reading, given


def record(number: int, sent_ns: int | None = None) -> FakeMessage:
    return FakeMessage({"id": number, "sent_ns": time.monotonic_ns() if sent_ns is None else sent_ns})


def hand_over(first: int, end: int, *, timeout_s: float = 20.0, settle_s: float | None = None) -> dict[str, Any]:
    return {"first": first, "end": end, "timeout_s": timeout_s, "settle_s": settle_s}


FIELDS = ["id", "sent_ns"]


def test_every_partition_is_read_from_its_start_without_commits() -> None:
    run, _ = reader(partitions=3, fields=FIELDS)
    consumer = consumer_of(run)
    assert [(place.topic, place.partition, place.offset) for place in consumer.assigned] == [
        ("out", number, 0) for number in range(3)
    ]
    assert consumer.config["enable.auto.commit"] is False
    assert consumer.config["bootstrap.servers"] == "b:1"


def test_arrivals_are_returned_once_all_wanted_records_are_there() -> None:
    messages = [FakeMessage(error=EOF), *(record(number) for number in (-1, 0, 1, 1, 2))]
    run, orders = reader(*messages, fields=FIELDS, orders=[hand_over(0, 3)])
    run.run()
    seen = take_arrivals(Path(orders.replies[-1]["finished"]))
    assert seen.numbers.tolist() == [-1, 0, 1, 1, 2]
    assert seen.ready_ns is not None
    assert (seen.received_ns >= seen.sent_ns).all()
    assert sorted(seen.received_ns.tolist()) == seen.received_ns.tolist()


def test_a_missing_record_is_awaited_until_the_timeout() -> None:
    run, orders = reader(record(0), record(2), fields=FIELDS, orders=[hand_over(0, 3, timeout_s=0.05)])
    began = time.monotonic()
    run.run()
    assert time.monotonic() - began >= 0.05
    assert take_arrivals(Path(orders.replies[-1]["finished"])).numbers.tolist() == [0, 2]


def test_with_unknown_records_the_wait_ends_after_silence() -> None:
    order = hand_over(0, 1_000, timeout_s=20.0, settle_s=0.05)
    run, orders = reader(record(7), record(9), fields=FIELDS, orders=[order])
    began = time.monotonic()
    run.run()
    assert 0.05 <= time.monotonic() - began < 10
    assert take_arrivals(Path(orders.replies[-1]["finished"])).numbers.tolist() == [7, 9]


def test_the_probe_is_ready_at_the_end_of_every_partition() -> None:
    run, _ = reader(partitions=2, fields=FIELDS)
    run._take(FakeMessage(error=EOF, partition=0), 100)  # type: ignore[arg-type]
    assert run._snapshot()["ready"] is False
    run._take(FakeMessage(error=EOF, partition=1), 200)  # type: ignore[arg-type]
    run._take(FakeMessage(error=EOF, partition=1), 300)  # type: ignore[arg-type]
    assert run._snapshot()["ready"] is True
    assert run.ready_ns == 200, "the first time counts"


def test_other_errors_are_ignored() -> None:
    run, _ = reader(fields=FIELDS)
    run._take(FakeMessage(error=KafkaError._TRANSPORT), 100)  # type: ignore[arg-type]
    assert run.ready_ns is None
    assert len(run.numbers) == 0


def test_a_snapshot_covers_the_arrivals_since_the_last_one() -> None:
    run, _ = reader(fields=FIELDS)
    for number in range(100):
        run._take(record(number, 0), (number + 1) * 1_000_000)  # type: ignore[arg-type]
    first = run._snapshot()
    assert (first["arrived"], first["recent"]) == (100, 100)
    assert (first["p50_ms"], first["p95_ms"], first["p99_ms"]) == (50.0, None, None)
    run._take(record(100, 0), 1)  # type: ignore[arg-type]
    second = run._snapshot()
    assert (second["arrived"], second["recent"], second["p50_ms"]) == (101, 1, None)


def test_a_result_is_identified_by_its_lineage_headers() -> None:
    headers = {"tailrace.partition": b"3", "tailrace.offset": b"4711", "tailrace.event_time": b"1763200000123"}
    run, _ = reader()
    run._take(FakeMessage(b"anything", headers=headers), 5)  # type: ignore[arg-type]
    assert run.numbers[0] == origin_number(3, 4711)
    assert run.sent[0] == 1_763_200_000_123_000_000


def test_without_an_engine_a_record_is_identified_by_its_offset() -> None:
    stamps = {"bench.id": b"8", "bench.sent_ns": b"1763200000000000001"}
    run, _ = reader(partitions=3)
    run._take(FakeMessage(b"anything", partition=2, offset=17, headers=stamps), 5)  # type: ignore[arg-type]
    assert (run.numbers[0], run.sent[0]) == (origin_number(2, 17), 1_763_200_000_000_000_001)
    both = {**stamps, "tailrace.partition": b"0", "tailrace.offset": b"1", "tailrace.event_time": b"2"}
    run._take(FakeMessage(b"anything", partition=2, offset=18, headers=both), 5)  # type: ignore[arg-type]
    assert run.numbers[1] == origin_number(0, 1), "an engine may pass the headers of its source on"


@pytest.mark.parametrize("headers", [None, {}, {"tailrace.partition": b"3"}])
def test_a_result_without_lineage_is_unidentified(headers: dict[str, bytes] | None) -> None:
    run, _ = reader()
    run._take(FakeMessage(b"anything", headers=headers), 5)  # type: ignore[arg-type]
    assert (run.numbers[0], run.sent[0]) == (-1, 0)


def test_the_probe_ends_with_its_owner_and_leaves_no_file(tmp_path: Path) -> None:
    run, orders = reader(fields=FIELDS)
    orders.released.set()
    run.run()
    assert list(tmp_path.glob("tailrace-samples-*")) == []
