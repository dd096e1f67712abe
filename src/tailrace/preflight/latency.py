"""The latency chain: about how long a record may wait at each step, from the settings in force."""

from collections.abc import Iterator, Mapping

from tailrace.preflight.query import Query
from tailrace.preflight.report import Link, When

SHUFFLE_TIMER = "spark.shuffle.streaming.networkBufferMaxWaitTimeMs"
FETCH_BYTES = "kafka.fetch.min.bytes"
FETCH_WAIT = "kafka.fetch.max.wait.ms"
LINGER = "kafka.linger.ms"
_ROW_BY_ROW = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
    "spark.sql.execution.python.udf.buffer.size": "4",
}
"""With all of these, Spark sends each row to a function without Arrow in its own message."""
_SPARK_TIMER_MS = 50.0
_KAFKA_FETCH_WAIT_MS = 500.0
_HOP_MS = 0.45
"""Producer, broker and consumer if nothing waits: the p50 of the benchmark's floor (docs/results.md)."""
_PAUSE_MS, _PAUSE_WITH_STATE_MS = 300.0, 550.0
"""The pause between two batches, as measured by ``bench gap`` (docs/results.md)."""
_STATIC_SIDE_MS = 110.0
"""The extra pause to read a static table of a thousand rows again (``tailrace bench study static-table``)."""
_PYTHON_MS = {"pickled rows": 0.3, "plain columns": 0.8, "Arrow batches": 0.9}
"""What `@udf`, `@pandas_udf` and `arrow_udf` add to the p50 of a built-in expression (docs/results.md, 2,000/s)."""


def latency_chain(query: Query) -> tuple[Link, ...]:
    """Return what each record may wait, what a checkpoint costs, and what a crash repeats."""
    links = list(_links(query))
    return (*links, *_at_checkpoints(query)) if query.realtime else tuple(links)


def _links(query: Query) -> Iterator[Link]:
    yield Link("topic to task", _HOP_MS, "the benchmark's floor")
    waits = [fetch_wait_ms(read.options) for read in query.reads]
    if any(waits):
        yield Link("fetch", max(waits), FETCH_WAIT)
    if not query.realtime:
        yield Link("next batch", query.interval_ms / 2, "half of --trigger-every")
    for number in range(1, query.shuffles + 1) if query.realtime else ():
        yield Link(f"shuffle {number}", shuffle_wait_ms(query), SHUFFLE_TIMER)
    yield from _python_links(query)
    yield from _sink_links(query)


def _python_links(query: Query) -> Iterator[Link]:
    if not query.realtime:
        return
    if holds_rows_for_python(query):
        yield Link("Python", float(query.interval_ms), "rows wait for the end of the batch")
    for node in query.python_nodes:
        if node.path:
            yield Link(", ".join(node.functions), _PYTHON_MS[node.path], f"Python, {node.path}: the benchmark's lanes")


def _sink_links(query: Query) -> Iterator[Link]:
    sink = query.sink.format if query.sink is not None else ""
    if sink == "foreach" and query.realtime:
        yield Link("Python foreach", float(query.interval_ms), "rows wait: Spark sends them in blocks of 1 MB")
    if sink != "kafka" or query.sink is None:
        return
    linger = linger_ms(query)
    if linger:
        yield Link("producer", linger, LINGER)
    yield Link("task to topic", _HOP_MS, "the benchmark's floor")
    if query.sink_replicas > 1:
        # Consumers see a record when every in-sync replica has it, whatever the producer waits for.
        acks = query.sink.options.get("kafka.acks", "all").lower()
        yield Link("replicas", _HOP_MS, f"{query.sink_replicas} replicas, kafka.acks={acks}")


def _at_checkpoints(query: Query) -> Iterator[Link]:
    if query.stateful:
        yield Link("pause", _PAUSE_WITH_STATE_MS, "bench gap, with state", When.CHECKPOINT)
    else:
        yield Link("pause", _PAUSE_MS, "bench gap, without state", When.CHECKPOINT)
    if next(query.operators("BroadcastExchange"), None) is not None:
        yield Link("static table", _STATIC_SIDE_MS, "a thousand rows; a million take a second", When.CHECKPOINT)
    if query.repeated_ms:
        setting = "--checkpoint-every" if query.repeated_ms == query.interval_ms else "--progress-every"
        yield Link("repeated records", float(query.repeated_ms), setting, When.CRASH)


def shuffle_wait_ms(query: Query) -> float:
    """Return how long a row may wait in a shuffle's buffer."""
    given = query.setting(SHUFFLE_TIMER)
    return float(given) if given.isdigit() else _SPARK_TIMER_MS


def linger_ms(query: Query) -> float:
    """Return how long the producer may keep a result to send it with others."""
    given = query.sink.options.get(LINGER, "0") if query.sink is not None else "0"
    return float(given) if given.isdigit() else 0.0


def fetch_wait_ms(options: Mapping[str, str]) -> float:
    """Return how long a broker may hold a record back until there are more."""
    given = {key.lower(): value for key, value in options.items()}
    least, wait = given.get(FETCH_BYTES, "1"), given.get(FETCH_WAIT, "")
    if not least.isdigit() or int(least) <= 1:
        return 0.0
    return float(wait) if wait.isdigit() else _KAFKA_FETCH_WAIT_MS


def holds_rows_for_python(query: Query) -> bool:
    """Return whether rows wait until a batch is full before they go to Python.

    The engine calls functions with the rows that have arrived. Spark's own operators wait; they run only if Spark's
    allowlist check is off.
    """
    row_by_row = all(query.setting(key) == value for key, value in _ROW_BY_ROW.items())
    spark_nodes = [node for node in query.python_nodes if not node.path and not node.refused]
    return any(node.name == "ArrowEvalPython" or not row_by_row for node in spark_nodes)
