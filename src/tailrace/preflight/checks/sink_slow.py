"""A setting of the producer or of the topic delays every result.

Problem:
    ``kafka.linger.ms=50`` on the sink, to save requests: each result waits for it. A topic with ``flush.messages=1``:
    each result waits for a disk.

Do this instead:
    Use the producer's defaults: nothing lingers, and results that come during a request go with the next one.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.latency import LINGER, linger_ms
from tailrace.preflight.query import Query

CODE = "SINK_SLOW"
_TOLERATED_MS = 5
_OFTEN = 1000


def check(query: Query) -> Iterator[Finding]:
    """Look at the writer's options and at the topic's settings."""
    if not query.realtime or query.sink is None:
        return
    linger = linger_ms(query)
    if linger > _TOLERATED_MS:
        yield warning(
            CODE,
            f"every result waits {linger:g} ms in the producer",
            why=f"{LINGER}={linger:g} makes it collect records before it sends them",
            fix=f"unset {LINGER} on the sink",
        )
    flush = query.sink_topic_settings.get("flush.messages", "")
    if flush.isdigit() and int(flush) <= _OFTEN:
        yield warning(
            CODE,
            f"the sink topic waits for the disk after every {flush} records",
            why=f"flush.messages is {flush}, on the topic or on the broker",
            fix="use replicas instead, and unset it: kafka-configs --alter --delete-config flush.messages",
        )
