"""Start a prepared query and confirm that it runs. Only here a query is handed to Spark."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.conditions.failures import translate_failure
from tailrace.errors import DefinitionError
from tailrace.pipeline import Pipeline
from tailrace.prepare.options import RunOptions, takes_options
from tailrace.prepare.prepare import Prepared, prepare, target_of
from tailrace.prepare.target import Announce, BuiltQuery
from tailrace.prepare.topics import kafka_endpoint
from tailrace.running.broker_watch import broker_pings
from tailrace.running.confirm import confirm
from tailrace.running.delivering import open_delivery
from tailrace.running.ending import Ending
from tailrace.running.query import RunningQuery, jvm_ended
from tailrace.running.signals import defer_signals, raise_on_signals
from tailrace.running.topic_watch import note_recreated
from tailrace.running.visible_records import visible_records
from tailrace.spark_session import pin_context

_SPARK_FAILED = (PySparkException, Py4JError, OSError)
"""What a call to Spark may raise."""


@takes_options(RunOptions)
def start(what: Pipeline | DataStreamWriter, options: RunOptions) -> RunningQuery:
    """Check a query and start it.

    With ``once``, the query ends when everything is processed; ``wait()`` waits for that.

    Args:
        what: A :class:`Pipeline`, or a ``DataStreamWriter`` (``df.writeStream.format("kafka")...``).
        options: The options of the run.

    Returns:
        The running query. Stop it with ``stop()``, or wait for it with ``wait()``.

    Raises:
        TailraceError: It cannot run; the error says why and what to do.
    """
    return start_query(what, options)


def start_query(
    what: Pipeline | DataStreamWriter,
    options: RunOptions,
    announce: Announce | None = None,
    *,
    private: bool = False,
    on_confirmed: Callable[[], object] = lambda: None,
) -> RunningQuery:
    """Check a query and start it.

    Args:
        what: The pipeline or writer.
        options: The options of the run.
        announce: Receives one line for each step that takes long or creates something.
        private: Whether the topics belong to a test; see `PipelineTarget`.
        on_confirmed: Called when the query runs; what is raised until this call returns stops the query.
    """
    target = target_of(what, options, private=private)
    if isinstance(what, DataFrame):
        raise DefinitionError(
            "a DataFrame cannot be started: it has no sink",
            fix='pass a tr.Pipeline or a DataStreamWriter: df.writeStream.format("kafka")...',
        )
    with prepare(target, options, dry_run=False, announce=announce) as prepared:
        prepared.require_ok()
        return _start(prepared, announce or _say_nothing, on_confirmed)


def _say_nothing(_line: str) -> None:
    """Announce nothing."""


def _start(prepared: Prepared, announce: Announce, on_confirmed: Callable[[], object]) -> RunningQuery:
    """Hand the query to Spark and see that it runs."""
    options, query = prepared.options, prepared.query
    outputs = _output_topics(prepared)
    with ExitStack() as unconfirmed:
        if outputs is not None:
            unconfirmed.callback(outputs.close)
        delivery = open_delivery(prepared, announce)
        if delivery is not None:
            unconfirmed.callback(delivery.close)
        with defer_signals():
            # Ctrl-C while Spark starts the query would leave it running without a handle.
            running = unconfirmed.enter_context(_begin(prepared))
        raise_on_signals(running)
        pin_context()  # stopping it would stop the query
        running.follow_topics(outputs)
        confirm(running)
        spark = prepared.built.frame.sparkSession if prepared.built is not None else None
        if query.realtime:
            running.follow_flow(options.starved, visible_records(query.reads))
            endpoints = [kafka_endpoint(read, spark) for read in query.reads]
            running.follow_partitions([each for each in endpoints if each is not None], _free_slots(prepared))
        running.follow_brokers(broker_pings(query.reads, query.sink, spark))
        on_confirmed()
        unconfirmed.pop_all()
    return running


def _free_slots(prepared: Prepared) -> Callable[[], int]:
    """Return a function that counts the slots that no query uses now; none if the query's own are unknown."""
    if prepared.built is None or prepared.query.slots is None:
        return lambda: 0
    spark = prepared.built.frame.sparkSession
    return lambda: engine.capacity(spark).free


def _output_topics(prepared: Prepared) -> engine.OutputTopics | None:
    """Record the ids of the topics that the query writes to, before it writes its first record."""
    built, sink = prepared.built, prepared.query.sink
    if built is None or sink is None or not built.outputs:
        return None
    outputs = engine.OutputTopics(built.frame.sparkSession, sink.options, built.outputs, prepared.checkpoint.location)
    note_recreated(built.name, outputs)
    return outputs


def _begin(prepared: Prepared) -> RunningQuery:
    """Hand the query to Spark, and with it the checkpoint's lock."""
    built = prepared.built
    if built is None:
        raise AssertionError(f"{prepared.report.name}: only a query that could be built is started")
    for counts in built.watched:
        counts.watch()
    lease = prepared.lease.pop_all()  # from here on the query may run, even if start() raises
    try:
        started = start_in_spark(built, prepared)
    except PySparkException as refused:
        lease.close()
        for counts in built.watched:
            counts.close()
        alternative = prepared.report.runs_in_microbatch
        raise translate_failure(built.name, str(refused), runs_in_microbatch=alternative) from refused
    except BaseException as failed:
        _abandon(built, lease, failed)
        raise
    try:
        return _running(prepared, built, started)
    except BaseException as failed:
        _abandon(built, lease, failed)
        raise


def _running(prepared: Prepared, built: BuiltQuery, started: StreamingQuery) -> RunningQuery:
    """Return the handle of a query that Spark has started."""
    options = prepared.options
    control = None if built.uncontrolled else engine.RunControl(started)
    running = RunningQuery(
        started,
        name=built.name,
        mode=options.planned_mode,
        checkpoint=prepared.checkpoint,
        report=prepared.report,
        counts=built.counts,
        costs=built.costs,
        ending=Ending(started, options.planned_mode, control, options.stop_timeout_s),
    )
    if built.sink is not None:
        running.refused = built.sink.counts
    running.is_effectively_once = prepared.delivery.effectively_once
    running.lost_lineage = built.lost_lineage
    running.bounded = options.once
    if prepared.query.sink is not None:
        running.sink_topic = prepared.query.sink.options.get("topic", "")
    return running


def start_in_spark(built: BuiltQuery, prepared: Prepared) -> StreamingQuery:
    """Start the query with the engine's sink, if it has one, otherwise with the writer's own."""
    if built.writer is None:
        raise AssertionError(f"{built.name}: only a query with a sink is started")
    options, location = prepared.options, prepared.checkpoint.location
    if options.realtime:
        engine.allow_operators(built.frame)
    if built.sink is not None:
        written = engine.writer_settings(built.writer).options
        return built.sink.start(
            built.frame, written, name=built.name, location=location, interval_ms=options.interval_ms
        )
    writer = engine.with_trigger(
        built.writer, realtime=options.realtime, interval_ms=options.interval_ms, once=options.once
    )
    return writer.queryName(built.name).option("checkpointLocation", location).start()


def _abandon(built: BuiltQuery, lease: ExitStack, failed: BaseException) -> None:
    """Stop a query that may run without a handle, and unlock its checkpoint once it has stopped.

    Raises:
        QueryFailed: Spark's JVM has ended.
    """
    if isinstance(failed, Exception) and engine.has_jvm_ended(failed):
        lease.close()
        raise jvm_ended(built.name) from failed
    try:
        for query in built.frame.sparkSession.streams.active:
            if query.name == built.name:
                query.stop()
        lease.close()
    except _SPARK_FAILED as unstopped:
        failed.add_note(f"query {built.name!r} could not be stopped, so its checkpoint stays locked: {unstopped}")
    with suppress(*_SPARK_FAILED):
        for counts in built.watched:
            counts.close()
