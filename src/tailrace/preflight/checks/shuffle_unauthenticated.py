"""The cluster authenticates its connections, and the streaming shuffle does not.

Problem:
    A real-time query with a shuffle relies on ``spark.authenticate`` or ``spark.network.crypto.enabled``: the sockets
    of Spark's streaming shuffle are neither authenticated nor encrypted.

Do this instead:
    Use a network that only the executors can reach, or a query without a shuffle.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SHUFFLE_UNAUTHENTICATED"
_KEYS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def check(query: Query) -> Iterator[Finding]:
    """Look for authentication that does not cover the shuffle."""
    enabled = [key for key in _KEYS if query.setting(key).lower() == "true"]
    if query.realtime and query.shuffles and enabled:
        yield warning(
            CODE,
            f"{enabled[0]} does not cover the shuffle of a real-time query",
            why="the sockets of Spark's streaming shuffle are neither authenticated nor encrypted",
            fix=query.or_microbatch("let only the executors reach each other's ports"),
        )
