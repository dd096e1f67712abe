"""The way of a record, link by link: what it may wait at each, from the settings in force."""

from collections.abc import Iterator

from tailrace.preflight.query import Query
from tailrace.preflight.report import Link

SHUFFLE_TIMER = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
_SPARKS_OWN_TIMER_MS = 50.0
_HOP_MS = 0.5
"""What one broker and one client cost a record that waits for nothing, as the benchmark's floor shows."""


def latency_chain(query: Query) -> tuple[Link, ...]:
    """The links of a query's way. In micro-batch the trigger stands for all."""
    return tuple(_links(query))


def _links(query: Query) -> Iterator[Link]:
    yield Link("broker to task", _HOP_MS, "the benchmark's floor: a fetch is answered when a record comes")
    if not query.realtime:
        yield Link("wait for the next batch", query.interval_ms / 2, "half of --trigger-every")
    for number in range(1, query.shuffles + 1):
        yield Link(f"shuffle {number}", shuffle_wait_ms(query), SHUFFLE_TIMER)
    if query.sink is not None:
        linger = query.sink.options.get("kafka.linger.ms", "0")
        yield Link("producer", float(linger) if linger.replace(".", "", 1).isdigit() else 0.0, "kafka.linger.ms")
        yield Link("task to broker", _HOP_MS, "the benchmark's floor")


def shuffle_wait_ms(query: Query) -> float:
    """How long a row may wait in a shuffle's buffer."""
    given = query.setting(SHUFFLE_TIMER)
    return float(given) if given.isdigit() else _SPARKS_OWN_TIMER_MS
