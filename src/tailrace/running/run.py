"""Running a query until it ends or is told to end."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.options import DEFAULT_TRIGGER_EVERY
from tailrace.running.query import RunSummary
from tailrace.running.signals import stop_on_signals
from tailrace.running.start import start


def run(  # noqa: PLR0913 - one argument per choice of a user's
    what: Pipeline | DataStreamWriter,
    mode: Mode | str = Mode.REALTIME,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: str | None = None,
    trigger_every: str = DEFAULT_TRIGGER_EVERY,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    once: bool = False,
    starved: str = "stop",
) -> RunSummary:
    """Start a query as :func:`tailrace.start` does and wait until it ends, or Ctrl-C or SIGTERM stops it.

    With ``once`` it ends by itself, when everything that was in the topics at its start has been processed.

    Returns:
        What it did.

    Raises:
        TailraceError: It cannot run, or it failed.
    """
    running = start(
        what,
        mode,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        trigger_every=trigger_every,
        master=master,
        conf=conf,
        once=once,
        starved=starved,
    )
    with stop_on_signals() as stop, running:
        running.wait(stop=stop)
    return running.summary()
