"""The process that sends, with a producer that only takes notes. Real loads: tests/e2e."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.measure.schedule import NS_PER_S, ConstantRate
from tailrace.measure.traffic import load
from tailrace.measure.traffic.load import _Sender
from tailrace.measure.traffic.records import Events, as_settings

from .fakes import FakeOrders

RATE = 2000.0


class FakeProducer:
    """Takes every record; may be full for a while, refuse some, or be slow with one."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.sent: list[dict[str, Any]] = []
        self.full_for = 0
        self.refused: set[int] = set()
        self.stall_at: tuple[int, float] | None = None
        self.left_over = 0
        self.polls = 0

    def produce(
        self, topic: str, value: bytes, key: bytes, *, timestamp: int, headers: Any, on_delivery: Callable[..., None]
    ) -> None:
        if self.full_for > 0:
            self.full_for -= 1
            raise BufferError
        record = json.loads(value)
        if self.stall_at is not None and record["id"] == self.stall_at[0]:
            time.sleep(self.stall_at[1])  # what is tested is that the time shows
        self.sent.append({**record, "topic": topic, "at": key, "timestamp": timestamp, "headers": headers})
        on_delivery("refused" if record["id"] in self.refused else None, None)

    def poll(self, _timeout_s: float) -> int:
        self.polls += 1
        return 0

    def flush(self, _timeout_s: float) -> int:
        return self.left_over


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "Producer", FakeProducer)


def sender(
    *,
    start_ns: int | None = None,
    seconds: float = 0.05,
    burst: int = 0,
    stamped: bool = False,
    client: Any = None,
    first_number: int = 0,
) -> tuple[_Sender, FakeProducer]:
    start = time.monotonic_ns() if start_ns is None else start_ns
    orders = FakeOrders(
        {
            "client": client or {},
            "topic": "in",
            "shape": "constant",
            "rate_per_s": RATE,
            "start_ns": start,
            "end_ns": start + round(seconds * NS_PER_S),
            "clock_offset_ns": 0,
            "records": as_settings(Events(128)),
            "burst": burst,
            "stamped": stamped,
            "first_number": first_number,
        }
    )
    sending = _Sender(orders)
    assert isinstance(sending.producer, FakeProducer)
    return sending, sending.producer


def order(run: _Sender, first_s: float, end_s: float) -> None:
    """Tell which part of the plan is measured."""
    assert isinstance(run.orders, FakeOrders)
    start = run.plan.start_ns
    run.orders.orders.append({"first_ns": start + round(first_s * NS_PER_S), "end_ns": start + round(end_s * NS_PER_S)})


def test_every_record_is_sent_once_in_order_and_not_early() -> None:
    run, producer = sender()
    report = run.run()
    assert report["sent"] == 100
    assert report["failed"] == 0
    assert [record["id"] for record in producer.sent] == list(range(100))
    assert [record["sent_ns"] for record in producer.sent] == [run.plan.due_ns(number) for number in range(100)]
    assert min(run.late_ns) >= 0


def test_a_later_load_continues_the_numbers() -> None:
    run, producer = sender(seconds=0.002, first_number=500)
    run.run()
    assert [record["id"] for record in producer.sent] == [500, 501, 502, 503]
    assert [record["sent_ns"] for record in producer.sent] == [run.plan.due_ns(number) for number in range(4)]


def test_a_record_has_its_intended_send_time() -> None:
    plain, bare = sender(seconds=0.002)
    plain.run()
    run, producer = sender(seconds=0.002, stamped=True)
    run.run()
    assert {record["headers"] for record in bare.sent} == {None}
    for record in producer.sent:
        assert record["timestamp"] == record["sent_ns"] // 1_000_000
        assert record["headers"] == {"bench.id": b"%d" % record["id"], "bench.sent_ns": b"%d" % record["sent_ns"]}
        assert record["at"].decode() == record["key"]


def test_a_burst_comes_first_with_negative_numbers() -> None:
    """Also where the process was slow to start, as in this test: the plan began long ago."""
    run, producer = sender(start_ns=time.monotonic_ns() - NS_PER_S, seconds=0.01, burst=50)
    run.run()
    numbers = [record["id"] for record in producer.sent]
    assert numbers == list(range(-50, 20))
    times = [record["sent_ns"] for record in producer.sent]
    assert times == sorted(times), "the newest record of a key is that with the greatest number and time"


def test_the_window_is_set_while_the_load_runs() -> None:
    run, producer = sender(seconds=3600)
    order(run, 0.02, 0.05)
    report = run.run()
    assert len(producer.sent) == report["sent"] == 100
    assert report["measured"] == 60
    assert report["took_s"] == (run.sent_ns[99] - run.sent_ns[40]) / 1e9


def test_a_stall_delays_every_record_due_in_it() -> None:
    run, producer = sender()
    producer.stall_at = (20, 0.03)
    order(run, 0.0, 0.05)
    report = run.run()
    assert report["late_ms_max"] >= 29
    assert sum(late >= 5_000_000 for late in run.late_ns) >= 45, "25 ms of the stall hold 50 records"
    assert [record["sent_ns"] for record in producer.sent] == [run.plan.due_ns(number) for number in range(100)], (
        "what was meant stays what was meant"
    )


def test_a_full_queue_delays_records_without_skipping_any() -> None:
    run, producer = sender(seconds=0.01)
    producer.full_for = 7
    assert run.run()["sent"] == 20
    assert producer.polls >= 7
    assert [record["id"] for record in producer.sent] == list(range(20))


def test_refused_and_undelivered_records_are_counted() -> None:
    run, producer = sender(seconds=0.01)
    producer.refused = {3, 4, 11}
    producer.left_over = 2
    assert run.run()["failed"] == 5


def test_no_lateness_without_measured_records() -> None:
    run, _ = sender(seconds=0.01)
    run.first = 20
    assert run.run() == {
        "sent": 20,
        "failed": 0,
        "measured": 0,
        "took_s": 0.0,
        "late_ms_p50": 0.0,
        "late_ms_p99": 0.0,
        "late_ms_max": 0.0,
    }


def test_lateness_covers_only_the_measured_records() -> None:
    run, _ = sender()
    run.plan = ConstantRate(0, 1000.0)
    run.first = 1000
    run.sent_ns.extend(number * 1_000_000 for number in range(2000))
    run.late_ns.extend([50_000_000] * 1000 + [number * 1000 for number in range(1000)])
    measured = run._measured()
    assert measured == {
        "measured": 1000,
        "took_s": 0.999,
        "late_ms_p50": 0.5,
        "late_ms_p99": 0.99,
        "late_ms_max": 0.999,
    }


def test_the_load_ends_with_its_owner() -> None:
    run, producer = sender(seconds=3600)
    run.orders.released.set()
    assert run.run()["sent"] == 0
    assert producer.sent == []


def test_the_users_client_settings_override_the_defaults() -> None:
    _, producer = sender(client={"bootstrap.servers": "b:1", "linger.ms": 5})
    assert producer.config["bootstrap.servers"] == "b:1"
    assert producer.config["linger.ms"] == 5
    assert producer.config["acks"] == "all"
