"""A thread that logs which topics of a running query are created again, and which of their records are gone.

The engine compares the ids of the source's topics and decides before each batch. The watch only passes on what it says.
It also polls at the topics that the query writes to.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tailrace.conditions.sources import RECORDS_LOST
from tailrace.engine import OutputTopics, RunControl, has_jvm_ended

_POLL_EVERY_S = 1.0
_OUTPUTS_EVERY = 5
"""The topics that the query writes to are checked this many times less often: each check asks a broker."""
_FAILED = (PySparkException, Py4JError, OSError)
_log = logging.getLogger("tailrace")

ADOPTED = (
    "the checkpoint had no topic ids, so Tailrace cannot tell whether a topic was deleted and created again before "
    "this start; if one was, records may be missing"
)
NO_IDS = "the broker has no topic ids, so Tailrace cannot tell whether a topic is deleted and created again"


class TopicWatch:
    """Logs what happens to the topics of a query.

    Args:
        name: The name of the query.
        control: Its control; None if its sources are Spark's own.
        outputs: The topics that it writes to; None if they are unknown.
        has_ended: Whether it has ended.
    """

    def __init__(
        self, name: str, control: RunControl | None, outputs: OutputTopics | None, has_ended: Callable[[], bool]
    ) -> None:
        self._name = name
        self._control = control
        self._outputs = outputs
        self._has_ended = has_ended
        self._polls = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"topics of {name}", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching; log what the engine has said until now."""
        if not self._ended.is_set():
            self._ended.set()
            try:
                self._log_notices()
                if self._outputs is not None:
                    self._outputs.close()
            except _FAILED:
                pass  # Spark is gone

    def _run(self) -> None:
        while not self._ended.wait(_POLL_EVERY_S) and not self._has_ended():
            try:
                self.poll()
            except _FAILED as failed:
                if has_jvm_ended(failed):
                    return  # otherwise a broker does not respond; the next poll may succeed
            except Exception:  # noqa: BLE001 - a watch must not end silently
                _log.exception("query %r: its topics could not be watched", self._name)

    def poll(self) -> None:
        """Log what is new."""
        self._polls += 1
        self._log_notices()
        if self._outputs is not None and self._polls % _OUTPUTS_EVERY == 0:
            note_recreated(self._name, self._outputs)

    def _log_notices(self) -> None:
        for notice in self._control.notices() if self._control is not None else ():
            _log.warning("query %r: %s", self._name, sentence_of(notice))


def sentence_of(notice: Mapping[str, Any]) -> str:
    """Return what the engine says of a topic as a sentence."""
    if notice["kind"] in ("adopted", "no-ids"):
        return ADOPTED if notice["kind"] == "adopted" else NO_IDS
    if notice["kind"] == "recreated-idle":
        then = f"continue {RECORDS_LOST['recreated'].defaults['continues']}" if notice["accepted"] else "fail"
        return (
            f"topic {notice['topic']!r} was deleted and created again; the query will {then} when its next batch starts"
        )
    if notice["kind"] == "missing":
        then = "continues with the others" if notice["accepted"] else "fails with its next batch unless it exists again"
        return f"topic {notice['topic']!r} no longer exists; the query {then}"
    condition = RECORDS_LOST[notice["kind"]]
    message = condition.message(topic=notice["topic"], offsets=notice["offsets"])
    return f"{message.what}; continuing {condition.defaults['continues']} ({message.why})"


def note_recreated(name: str, outputs: OutputTopics) -> None:
    """Record the ids of the topics that a query writes to; log which of them were created again."""
    try:
        recreated = outputs.look()
    except _FAILED as unanswered:
        _log.debug("query %r: the topics that it writes to could not be asked: %s", name, unanswered)
        return
    for topic in recreated:
        _log.warning(
            "query %r: topic %r, which it writes to, was deleted and created again: earlier results are gone",
            name,
            topic,
        )
