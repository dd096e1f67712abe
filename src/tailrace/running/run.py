"""Run a query until it ends or a signal stops it."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.pipeline import Pipeline
from tailrace.prepare.options import RunOptions, takes_options
from tailrace.prepare.target import Announce
from tailrace.running.query import RunningQuery
from tailrace.running.signals import stop_on_signals
from tailrace.running.start import start_query
from tailrace.running.summary import RunSummary


@takes_options(RunOptions)
def run(what: Pipeline | DataStreamWriter, options: RunOptions) -> RunSummary:
    """Start a query like :func:`tailrace.start` and wait until it ends, or Ctrl-C or SIGTERM stops it.

    Args:
        what: A :class:`Pipeline`, or a ``DataStreamWriter`` (``df.writeStream.format("kafka")...``).
        options: The options of the run.

    Returns:
        What it did.

    Raises:
        TailraceError: It cannot run, or it failed.
    """
    summary, _ = run_query(what, options)
    return summary


def run_query(
    what: Pipeline | DataStreamWriter,
    options: RunOptions,
    *,
    announce: Announce | None = None,
    on_start: Callable[[RunningQuery], None] | None = None,
) -> tuple[RunSummary, bool]:
    """Run a query; return what it did, and whether it ended by itself.

    Args:
        what: The pipeline or writer.
        options: The options of the run.
        announce: Receives one line for each step that takes long or creates something.
        on_start: Called once the query runs.
    """
    stop = threading.Event()
    with ExitStack() as handled:
        # A signal interrupts the start; once the query runs, a signal stops it. No signal is lost between the two.
        running = start_query(
            what, options, announce, on_confirmed=lambda: handled.enter_context(stop_on_signals(stop))
        )
        with running:
            try:
                if on_start is not None:
                    on_start(running)
                done = running.wait(stop=stop)
            except KeyboardInterrupt:
                if stop.is_set():  # the second signal, before the end of the block could act on the first
                    running.skip_saving()
                raise
    return running.summary(), done
