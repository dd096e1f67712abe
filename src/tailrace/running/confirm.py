"""Confirm that a real-time query runs: Spark refuses many queries only after their start has returned."""

import time

from tailrace import engine
from tailrace.errors import QueryFailed, TailraceError
from tailrace.pipeline import Mode
from tailrace.running.flow_watch import not_in_real_time
from tailrace.running.query import RunningQuery

_TIMEOUT_S = 60.0


def confirm(running: RunningQuery) -> None:
    """Wait until the tasks of a real-time query run and its Python functions are loaded.

    Raises:
        TailraceError: It ended, or does not run in real time.
    """
    if running.mode is not Mode.REALTIME:
        return
    try:
        _await_tasks(running)
    except TailraceError:
        raise
    except Exception as failed:
        raise running.unanswered(failed) from failed


def _await_tasks(running: RunningQuery) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not engine.has_running_tasks(running.query):
        if not running.is_active:
            running.raise_if_failed()
            if running.bounded:
                return  # it had little to read
            raise QueryFailed(f"query {running.name!r} ended right after its start")
        if time.monotonic() > deadline:
            raise QueryFailed(
                f"query {running.name!r} did not start its tasks within {_TIMEOUT_S:.0f} s",
                fix="check whether other queries hold Spark's task slots",
            )
        time.sleep(0.05)
    if not engine.runs_in_real_time(running.query):
        raise not_in_real_time(running.name)
    # Not an error after the deadline: a large model may take minutes to load.
    while not running.has_functions_loaded() and time.monotonic() < deadline:
        if not running.is_active:
            running.raise_if_failed()
            if running.bounded:
                return
            raise QueryFailed(f"query {running.name!r} ended while its Python functions were loading")
        time.sleep(0.02)
