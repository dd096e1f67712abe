"""What is found in both topics, on topics that are made up. Reading them for real: tests/e2e."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailrace.errors import MeasurementFailed
from tailrace.measure import audit as module
from tailrace.measure.audit import (
    SPANS,
    Appended,
    audit,
    batch_end_ns,
    boundaries,
    count_foreign,
    parts_ms,
    pause_ms,
    read_all,
    read_appended,
    read_progress,
    read_stamps,
    spans,
)
from tailrace.measure.schedule import NS_PER_S
from tailrace.measure.traffic.probe import Arrivals, origin_number
from tailrace.measure.traffic.records import event, event_maker
from tailrace.measure.works import Work
from tailrace.report.result import Span

from .fakes import MS, RECORDS, START, arrivals_of, measurement

CLIENT = {"bootstrap.servers": "b:1"}
NO_NUMBERS = np.array([], dtype=np.int64)
Nanoseconds = NDArray[np.int64]


def due(numbers: Any) -> Any:
    return START + np.asarray(numbers, dtype=np.int64) * MS


def appended(numbers: Any, after_ms: int = 1, sent_ns: Any = None) -> Appended:
    """Records that a broker took so many milliseconds after they were due."""
    number = np.asarray(numbers, dtype=np.int64)
    sent = due(number) if sent_ns is None else np.asarray(sent_ns, dtype=np.int64)
    values = [
        {"id": each, "sent_ns": int(at), "key": event(each).key, "doubled": 2 * event(each).amount}
        for each, at in zip(number.tolist(), sent, strict=True)
    ]
    return Appended(number, sent, due(number) // MS + after_ms, values)


def test_results_of_sent_records_are_not_foreign() -> None:
    sent = appended(range(-50, 1000))
    shuffled = np.random.default_rng(3).permutation(np.arange(-50, 1000))
    assert count_foreign(appended(shuffled), sent) == 0
    assert count_foreign(appended([]), sent) == 0


@pytest.mark.parametrize("number", [-51, 1000, 10**12, -(10**12)])
def test_a_number_that_was_never_sent_is_foreign(number: int) -> None:
    assert count_foreign(appended([0, 1, number]), appended(range(-50, 1000))) == 1


def test_a_number_with_another_send_time_is_foreign() -> None:
    """Another run has sent the same numbers."""
    numbers = np.arange(1000)
    stale = appended(numbers, sent_ns=due(numbers) - 3600 * NS_PER_S)
    assert count_foreign(stale, appended(numbers)) == 1000


def test_every_result_is_foreign_if_nothing_was_sent() -> None:
    assert count_foreign(appended(range(5)), appended([])) == 5


def test_spans_split_the_latency_in_three() -> None:
    sent = appended(range(-50, RECORDS), after_ms=2)
    results = appended(range(-50, RECORDS), after_ms=7)
    parts = spans(sent, results, arrivals_of(range(RECORDS), 10.0), measurement())
    assert parts == {
        "intended to broker": Span(2.0, 2.0, 2.0),
        "broker to sink": Span(5.0, 5.0, 5.0),
        "sink to receipt": Span(3.0, 3.0, 3.0),
    }
    assert tuple(parts) == SPANS


def test_spans_use_the_first_result_of_each_measured_record() -> None:
    numbers = np.arange(RECORDS)
    slow_before = Appended(
        np.concatenate([numbers - RECORDS, numbers]),
        NO_NUMBERS,
        np.concatenate([due(numbers) // MS + 90_000, due(numbers) // MS + 1]),
        (),
    )
    twice = Appended(
        np.concatenate([numbers, numbers]),
        NO_NUMBERS,
        np.concatenate([due(numbers) // MS + 2, due(numbers) // MS + 50]),
        (),
    )
    arrivals = arrivals_of([*range(-5, RECORDS), *range(RECORDS)], [*[4.0] * (RECORDS + 5), *[60.0] * RECORDS])
    parts = spans(slow_before, twice, arrivals, measurement())
    assert parts is not None
    assert [parts[name].p99 for name in SPANS] == [1.0, 1.0, 2.0]


def test_a_span_is_never_negative() -> None:
    sent = appended(range(RECORDS), after_ms=-1)
    parts = spans(sent, appended(range(RECORDS), after_ms=0), arrivals_of(range(RECORDS), 2.0), measurement())
    assert parts is not None
    assert parts["intended to broker"].p50 == 0.0


def test_no_spans_without_records_in_both_topics() -> None:
    full, none = appended(range(RECORDS)), appended([])
    assert spans(full, full, arrivals_of([]), measurement()) is None
    assert spans(full, none, arrivals_of(range(RECORDS)), measurement()) is None
    assert spans(none, full, arrivals_of(range(RECORDS)), measurement()) is None


@dataclass
class FakeMessage:
    """A record of a topic that is a list."""

    number: int
    text: bytes
    header: dict[str, bytes]
    failed: str | None = None

    def value(self) -> bytes:
        return self.text

    def partition(self) -> int:
        return self.number % 2

    def offset(self) -> int:
        return self.number // 2

    def timestamp(self) -> tuple[int, int]:
        return 2, START // MS + self.number + 1

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self.header.items())

    def error(self) -> str | None:
        return self.failed


class FakeTopics:
    """Topics by name, each with two partitions; a consumer of them gives a few records at a time."""

    def __init__(self, topics: dict[str, list[FakeMessage]]) -> None:
        self.topics = topics
        self.at = ""
        self.given = 0
        self.is_closed = False

    def ends(self, _client: Any, counts: dict[str, int]) -> dict[str, dict[str, int]]:
        offsets = {}
        for topic in counts:
            real = [message for message in self.topics[topic] if message.failed is None]
            offsets[topic] = {str(number): sum(each.partition() == number for each in real) for number in range(2)}
        return offsets

    def consumer(self, _config: Any) -> "FakeTopics":
        self.given = 0
        return self

    def assign(self, places: list[Any]) -> None:
        self.at = places[0].topic if places else ""

    def consume(self, _count: int, _timeout_s: float) -> list[FakeMessage]:
        self.given += 7
        return self.topics[self.at][self.given - 7 : self.given]

    def close(self) -> None:
        self.is_closed = True


def use(monkeypatch: pytest.MonkeyPatch, **topics: list[FakeMessage]) -> FakeTopics:
    fake = FakeTopics(topics)
    monkeypatch.setattr(module, "Consumer", fake.consumer)
    monkeypatch.setattr(module, "log_ends", fake.ends)
    monkeypatch.setattr(module, "partition_counts", lambda _client, topics: dict.fromkeys(topics, 2))
    return fake


def messages(count: int, value: Any = None) -> list[FakeMessage]:
    make = event_maker(128)
    batch = []
    for number in range(count):
        text = make(number, int(due(number)))[1] if value is None else json.dumps(value(number)).encode()
        batch.append(FakeMessage(number, text, {"bench.id": b"%d" % number, "bench.sent_ns": b"%d" % due(number)}))
    return batch


def doubled(number: int) -> dict[str, Any]:
    content = event(number)
    return {"id": number, "sent_ns": int(due(number)), "key": content.key, "doubled": 2 * content.amount}


def test_a_topic_is_read_completely_with_append_times(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, one=messages(20))
    records = read_appended(CLIENT, "one")
    assert records.numbers.tolist() == list(range(20))
    assert records.sent_ns.tolist() == due(range(20)).tolist()
    assert records.appended_ms.tolist() == [START // MS + number + 1 for number in range(20)]
    assert records.values[3]["key"] == event(3).key
    assert fake.is_closed


def test_an_empty_topic_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, one=[])
    assert len(read_appended(CLIENT, "one").numbers) == 0


def test_a_broker_that_stops_sending_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, one=messages(20))
    monkeypatch.setattr(module, "log_ends", lambda *_: {"one": {"0": 10, "1": 11}})
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.05)
    with pytest.raises(MeasurementFailed, match="could not be read to its end"):
        list(read_all(CLIENT, "one"))
    assert fake.is_closed


def test_errors_between_records_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, one=[*messages(3), FakeMessage(99, b"", {}, "lost the broker"), *messages(6)[3:]])
    assert len(list(read_all(CLIENT, "one"))) == 6


def test_stamps_are_keyed_by_partition_and_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = FakeMessage(20, b"{}", {})
    use(monkeypatch, one=[*messages(20), foreign])
    stamps = read_stamps(CLIENT, "one")
    assert len(stamps) == 20
    assert stamps[origin_number(1, 3)] == (7, due(7))


def test_an_audit_of_a_correct_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, source=messages(100), sink=messages(100, doubled))
    seen = measurement(arrivals_of(range(100)), end=100)
    (result,) = audit(Work.STATELESS, CLIENT, "source", "sink", [seen])
    assert (result.checked, result.wrong, result.foreign) == (100, 0, 0)
    assert result.spans_ms is not None


def test_an_audit_counts_wrong_and_foreign_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def harmed(number: int) -> dict[str, Any]:
        changed: dict[int, dict[str, Any]] = {7: {"doubled": -1.0}, 98: {"sent_ns": 5}, 99: {"sent_ns": 5}}
        return {**doubled(number), **changed.get(number, {})}

    use(monkeypatch, source=messages(100), sink=messages(100, harmed))
    (result,) = audit(Work.STATELESS, CLIENT, "source", "sink", [measurement(arrivals_of(range(100)), end=100)])
    assert (result.checked, result.wrong, result.foreign) == (100, 1, 2)


def test_an_audit_without_an_engine_checks_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, source=messages(100))
    (result,) = audit(Work.STATELESS, CLIENT, "source", "source", [measurement(arrivals_of(range(100)), end=100)])
    assert (result.checked, result.wrong, result.foreign) == (100, 0, 0)
    assert result.spans_ms is not None
    assert result.spans_ms["broker to sink"].p50 == 0.0


def test_arrivals_are_not_changed_by_an_audit() -> None:
    arrivals: Arrivals = arrivals_of(range(RECORDS))
    before = arrivals.received_ns.copy()
    spans(appended(range(RECORDS)), appended(range(RECORDS)), arrivals, measurement())
    assert np.array_equal(arrivals.received_ns, before)


def received(*pauses: tuple[float, float], seconds: float = 30.0) -> Nanoseconds:
    """A record each millisecond, save in the pauses: from a second on, for so many seconds."""
    at = np.arange(0, seconds, 0.001)
    for begin, length in pauses:
        at = at[(at <= begin) | (at >= begin + length)]
    return START + np.round(at * NS_PER_S).astype(np.int64)


def batch(number: int, start_s: float, took_s: float = 10.0, **more: Any) -> dict[str, Any]:
    began = datetime.fromtimestamp(START / NS_PER_S + start_s, UTC)
    text = began.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    durations = {
        "triggerExecution": round(took_s * 1000),
        "latestOffset": 3,
        "getBatch": 1,
        "queryPlanning": 19,
        "walCommit": 12,
        "commitOffsets": 8,
    }
    return {"batchId": number, "timestamp": text, "durationMs": durations, **more}


def at_ns(seconds: float) -> int:
    return START + round(seconds * NS_PER_S)


def test_a_batch_ends_after_its_trigger_execution() -> None:
    assert batch_end_ns(batch(0, 2.5, 10.25)) == pytest.approx(at_ns(12.75), abs=MS)


def test_the_pause_at_a_boundary() -> None:
    assert pause_ms(received((10.0, 0.13)), at_ns(10.0)) == pytest.approx(130, abs=1.1)
    assert pause_ms(received((9.9, 0.25)), at_ns(10.0)) == pytest.approx(250, abs=1.1)


def test_a_pause_far_from_a_boundary_is_ignored() -> None:
    assert pause_ms(received((20.0, 0.8)), at_ns(10.0)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("length_s", [2.5, 4.0, 9.0])
def test_a_long_pause_counts_in_full(length_s: float) -> None:
    for begin in (9.9, 10.1 - length_s):
        assert pause_ms(received((begin, length_s)), at_ns(10.0)) == pytest.approx(1000 * length_s, abs=1.1)


def test_no_pause_without_records_on_both_sides() -> None:
    assert pause_ms(np.array([], dtype=np.int64), at_ns(1)) is None
    assert pause_ms(np.array([at_ns(1)], dtype=np.int64), at_ns(1)) is None


def test_only_boundaries_in_the_window_count() -> None:
    progress = [batch(number, 10.0 * number - 5) for number in range(5)]
    shuffled = np.random.default_rng(5).permutation(received((15.0, 0.2), (25.0, 0.4), seconds=40))
    inside = boundaries(progress, shuffled, at_ns(10), at_ns(30))
    assert [(each.at_s, each.batch) for each in inside] == [(5.0, 1), (15.0, 2)]
    assert [each.pause_ms for each in inside] == pytest.approx([200, 400], abs=1.1)


def test_a_boundary_on_the_edge_belongs_to_the_later_window() -> None:
    progress = [batch(0, 0.0)]
    assert len(boundaries(progress, received(), batch_end_ns(progress[0]), at_ns(30))) == 1
    assert boundaries(progress, received(), at_ns(0), batch_end_ns(progress[0])) == []


def test_parts_come_from_both_batches_of_a_boundary() -> None:
    one = batch(0, 0.0, tasks={"last_start": 0, "first_end": 1_000, "last_end": 1_040})
    one["tasks"] |= {"first_end": START // MS + 9_900, "last_end": START // MS + 9_950}
    other = batch(1, 10.0, tasks={"last_start": START // MS + 10_060, "first_end": 0, "last_end": 0})
    assert parts_ms(one, other) == {
        "log writes": 20.0,
        "tasks end, first to last": 50.0,
        "offsets": 4.0,
        "planning": 19.0,
        "task start": 37.0,
        "driver between batches": 30.0,
    }


def test_parts_without_task_times() -> None:
    assert parts_ms(batch(0, 0), batch(1, 10)) == {"log writes": 20.0, "offsets": 4.0, "planning": 19.0}
    assert parts_ms(batch(0, 0, tasks=None), None) == {"log writes": 20.0}, "the next batch is not over yet"


def test_state_parts_come_from_the_slowest_operator() -> None:
    state = [
        {"commitTimeMs": 40, "customMetrics": {"rocksdbLoadLatencyMs": 5}},
        {"commitTimeMs": 70},
    ]
    parts = parts_ms(batch(0, 0, stateOperators=state), batch(1, 10, stateOperators=state))
    assert (parts["state commit"], parts["state load"]) == (70.0, 5.0)


def test_missing_durations_are_zero() -> None:
    bare = {"batchId": 0, "timestamp": "2025-11-15T10:00:00.000Z", "durationMs": {}}
    assert parts_ms(bare, bare) == {"log writes": 0.0, "offsets": 0.0, "planning": 0.0}


def test_progress_is_read_up_to_an_unfinished_line(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert read_progress(file) == [], "a lane that has none"
    file.write_text("")
    assert read_progress(file) == []
    whole = json.dumps(batch(0, 0)) + "\n" + json.dumps(batch(1, 10)) + "\n"
    for unfinished in ("", "{", '{"batchId": 2, "durationMs": {"walCommit": 3}', json.dumps(batch(2, 20))[:-1]):
        file.write_text(whole + unfinished)
        assert [each["batchId"] for each in read_progress(file)] == [0, 1]
