"""A cluster that authenticates its connections, and a shuffle that does not.

Anti-pattern:
    Relying on ``spark.authenticate`` or ``spark.network.crypto.enabled`` for a real-time query with state: the sockets
    of Spark's streaming shuffle are neither authenticated nor encrypted.

Best practice:
    A network that only the executors can reach, or a query without a shuffle.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SHUFFLE_UNAUTHENTICATED"
_KEYS = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def check(query: Query) -> Iterator[Finding]:
    """Whether a shuffle would be the one open door."""
    chosen = [key for key in _KEYS if query.setting(key).lower() == "true"]
    if query.realtime and query.shuffles and chosen:
        yield warning(
            CODE,
            f"{chosen[0]} does not cover the shuffle of a real-time query",
            why="the sockets of Spark's streaming shuffle are neither authenticated nor encrypted",
            fix=query.or_microbatch("let only the executors reach each other's ports"),
        )
