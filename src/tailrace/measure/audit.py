"""What a run shows after it: append times, wrong results, and the pauses between real-time batches.

All of it is read after the measurement, so that the probe only records times.
"""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition
from numpy.typing import NDArray

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig, log_ends, partition_counts
from tailrace.measure.latency import percentile_ms
from tailrace.measure.measurement import Measurement
from tailrace.measure.traffic.load import SENT_HEADER, SEQUENCE_HEADER
from tailrace.measure.traffic.probe import Arrivals, origin_number
from tailrace.measure.traffic.records import EVENT_NUMBER_FIELD, SENT_FIELD
from tailrace.measure.works import Work, count_wrong
from tailrace.report.result import Boundary, Span

_AT_ONCE = 1000
_WAIT_S = 0.1
_TIMEOUT_S = 30.0
_NS_PER_MS = 1_000_000
SPANS = ("intended to broker", "broker to sink", "sink to receipt")


@dataclass(frozen=True)
class Appended:
    """The records of a topic."""

    numbers: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    appended_ms: NDArray[np.int64]
    """The broker's clock when it appended the record, in whole milliseconds."""
    values: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Audit:
    """The checks of a run."""

    checked: int
    wrong: int
    foreign: int
    """Results of records that this run never sent."""
    spans_ms: dict[str, Span] | None


def audit(work: Work, client: ClientConfig, source: str, sink: str, windows: Sequence[Measurement]) -> list[Audit]:
    """Read both topics and compare them with the plan. The windows of a run differ in their spans."""
    sent = read_appended(client, source)
    results = read_appended(client, sink) if sink != source else sent
    wrong = count_wrong(work, results.values, sent.numbers.tolist()) if sink != source else 0
    foreign = count_foreign(results, sent)
    return [
        Audit(len(results.values), wrong, foreign, spans(sent, results, window.arrivals, window)) for window in windows
    ]


def count_foreign(results: Appended, sent: Appended) -> int:
    """Count the results whose number or intended send time does not belong to this run."""
    order = np.argsort(sent.numbers, kind="stable")
    numbers, times = sent.numbers[order], sent.sent_ns[order]
    if not len(numbers):
        return len(results.numbers)
    place = np.clip(np.searchsorted(numbers, results.numbers), 0, len(numbers) - 1)
    known = (numbers[place] == results.numbers) & (times[place] == results.sent_ns)
    return int(np.count_nonzero(~known))


def spans(sent: Appended, results: Appended, arrivals: Arrivals, window: Measurement) -> dict[str, Span] | None:
    """Split the latency of the measured records at the two append times of the broker."""
    received = arrivals.within(window.first, window.end).firsts()
    if not len(received):
        return None
    in_broker = _look_up(received.numbers, sent.numbers, sent.appended_ms)
    in_sink = _look_up(received.numbers, results.numbers, results.appended_ms)
    known = (in_broker > 0) & (in_sink > 0)
    if not np.any(known):
        return None
    sent_ns, received_ns = received.sent_ns[known], received.received_ns[known]
    broker_ns, sink_ns = in_broker[known] * _NS_PER_MS, in_sink[known] * _NS_PER_MS
    parts = (broker_ns - sent_ns, sink_ns - broker_ns, received_ns - sink_ns)
    return {name: _figures(part) for name, part in zip(SPANS, parts, strict=True)}


def _figures(part_ns: NDArray[np.int64]) -> Span:
    # The broker rounds down to a millisecond, so a span can be below zero by less than one.
    ordered = np.sort(np.maximum(part_ns, 0))
    return Span(percentile_ms(ordered, 50.0), percentile_ms(ordered, 95.0), percentile_ms(ordered, 99.0))


def _look_up(wanted: NDArray[np.int64], numbers: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first value of each wanted number, or 0 if it has none."""
    unique, first = np.unique(numbers, return_index=True)
    if not len(unique):
        return np.zeros(len(wanted), dtype=np.int64)
    place = np.clip(np.searchsorted(unique, wanted), 0, len(unique) - 1)
    return np.where(unique[place] == wanted, values[first][place], 0)


def read_appended(client: ClientConfig, topic: str) -> Appended:
    """Read a topic from its start to its current end."""
    numbers, sent_ns, appended_ms = [], [], []
    values = []
    for message in read_all(client, topic):
        value = json.loads(message.value() or b"{}")
        numbers.append(value[EVENT_NUMBER_FIELD])
        sent_ns.append(value[SENT_FIELD])
        appended_ms.append(message.timestamp()[1])
        values.append(value)
    columns = [np.array(column, dtype=np.int64) for column in (numbers, sent_ns, appended_ms)]
    return Appended(columns[0], columns[1], columns[2], values)


def read_stamps(client: ClientConfig, topic: str) -> dict[int, tuple[int, int]]:
    """Return the number and intended send time in each record's headers, by its place in the topic."""
    stamps = {}
    for message in read_all(client, topic):
        headers = dict(message.headers() or ())
        number, sent_ns = headers.get(SEQUENCE_HEADER), headers.get(SENT_HEADER)
        if number is not None and sent_ns is not None:
            place = origin_number(message.partition() or 0, message.offset() or 0)
            stamps[place] = (int(number), int(sent_ns))
    return stamps


def unread_end(topic: str, silent_s: float) -> MeasurementFailed:
    """Return the error for a topic of which a broker does not send the rest."""
    return MeasurementFailed(
        f"topic {topic} could not be read to its end", why=f"the broker sent no records for {silent_s:g} s"
    )


def read_all(client: ClientConfig, topic: str) -> Iterator[Message]:
    """Yield every record that is in a topic now."""
    ends = log_ends(client, partition_counts(client, [topic]))[topic]
    left = {int(partition): end for partition, end in ends.items() if end > 0}
    consumer = Consumer({**client, "group.id": "tailrace-audit", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        heard = time.monotonic()
        while left:
            # consume() waits for all of them or the whole time, so both are small.
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT_S:
                raise unread_end(topic, _TIMEOUT_S)
            for message in messages:
                if message.error() is not None:
                    continue
                partition = message.partition() or 0
                if partition in left and (message.offset() or 0) + 1 >= left[partition]:
                    del left[partition]
                yield message
    finally:
        consumer.close()


_AROUND_NS = 2_000_000_000
"""A pause within this distance belongs to a boundary."""

Batch = dict[str, Any]
"""A batch's progress as Spark reports it; ``tasks``, if known, has the start and end of its tasks."""


def read_progress(events: Path) -> list[Batch]:
    """Read the batches that a lane reported."""
    if not events.exists():
        return []
    whole, _, _unfinished = events.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def boundaries(progress: list[Batch], received_ns: NDArray[np.int64], first_ns: int, end_ns: int) -> list[Boundary]:
    """Return the boundaries in a window, with the pause that a consumer saw and its parts."""
    ordered = np.sort(received_ns)
    inside = []
    # Spark reports a batch at its end, so the batch after the last boundary may be missing.
    for batch, following in itertools.zip_longest(progress, progress[1:]):
        at_ns = batch_end_ns(batch)
        if first_ns <= at_ns < end_ns:
            inside.append(
                Boundary(
                    at_s=round((at_ns - first_ns) / 1e9, 3),
                    batch=batch["batchId"],
                    pause_ms=pause_ms(ordered, at_ns),
                    parts_ms=parts_ms(batch, following),
                )
            )
    return inside


def batch_start_ms(batch: Batch) -> float:
    """Return when a batch began."""
    return datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp() * 1000


def batch_end_ns(batch: Batch) -> int:
    """Return when a batch ended."""
    return round((batch_start_ms(batch) + _took(batch, "triggerExecution")) * 1e6)


def pause_ms(ordered_ns: NDArray[np.int64], at_ns: int) -> float | None:
    """Return the longest time without a record around a boundary, as a consumer saw it."""
    # With the record on either side, so that a pause across the edge counts in full.
    begin = max(int(np.searchsorted(ordered_ns, at_ns - _AROUND_NS)) - 1, 0)
    end = int(np.searchsorted(ordered_ns, at_ns + _AROUND_NS, side="right")) + 1
    near = ordered_ns[begin:end]
    if len(near) < 2:
        return None
    return round(float(np.max(np.diff(near))) / 1e6, 1)


def parts_ms(batch: Batch, following: Batch | None) -> dict[str, float]:
    """Return the parts of the time between two batches, by Spark's progress reports."""
    parts = {"log writes": _took(batch, "walCommit") + _took(batch, "commitOffsets")}
    state = batch.get("stateOperators") or []
    if state:
        parts["state commit"] = float(max(each.get("commitTimeMs", 0) for each in state))
    ended = batch.get("tasks")
    if ended is not None:
        parts["tasks end, first to last"] = float(ended["last_end"] - ended["first_end"])
    if following is not None:
        parts |= _start_parts(following)
        if ended is not None:
            between = batch_start_ms(following) - ended["last_end"] - parts["log writes"]
            parts["driver between batches"] = max(0.0, round(between, 1))
    return parts


def _start_parts(batch: Batch) -> dict[str, float]:
    parts = {
        "offsets": _took(batch, "latestOffset") + _took(batch, "getOffset") + _took(batch, "getBatch"),
        "planning": _took(batch, "queryPlanning"),
    }
    started = batch.get("tasks")
    if started is not None:
        until_running = started["last_start"] - batch_start_ms(batch)
        parts["task start"] = max(0.0, round(until_running - parts["offsets"] - parts["planning"], 1))
    state = batch.get("stateOperators") or []
    if state:
        loads = [each.get("customMetrics", {}).get("rocksdbLoadLatencyMs", 0) for each in state]
        parts["state load"] = float(max(loads))
    return parts


def _took(batch: Batch, name: str) -> float:
    return float(batch.get("durationMs", {}).get(name, 0))
