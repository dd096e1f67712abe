"""Continue from a run's notes, and keep notes for the next start."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engine.gateway import classic_of, jvm_of
from tailrace.engine.topics import said_by, unanswered
from tailrace.errors import CheckpointError


@dataclass(frozen=True)
class Resumed:
    """What the last run has left, after the checkpoint was moved as far forward as its note allows.

    Attributes:
        knows_results: Whether it is known where its results since the checkpoint are.
        is_closed: Whether it ended with everything saved.
        fingerprint: What decided then whether, how often and where rows are written; empty if unknown.
        advanced: How many records the checkpoint was moved forward.
        unused: Why its note could not be used; empty if it could, or if there is none.
        is_fresh: Whether no batch was ever begun.
        jvm: The engine's object.
    """

    knows_results: bool
    is_closed: bool
    fingerprint: str
    advanced: int
    unused: str
    is_fresh: bool
    jvm: Any


def resume(spark: SparkSession, location: str) -> Resumed:
    """Move a checkpoint, which must be locked, forward to what its last run has noted.

    Raises:
        CheckpointError: It cannot be read or written.
    """
    try:
        resumed = _kafka(spark).ProgressResume.resume(classic_of(spark), location)
    except (PySparkException, Py4JJavaError) as failed:
        raise CheckpointError(
            f"what the last run has noted in {location} cannot be used",
            why=said_by(failed).strip().splitlines()[-1],
            fix="free some space and check the rights of this user, or choose another: --checkpoint DIR",
        ) from failed
    facts = json.loads(str(resumed.json()))
    return Resumed(**facts, jvm=resumed)


class Delivery:
    """Keeps the notes of a run that is about to start, and knows the results that exist already."""

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        sink: Mapping[str, str],
        topics: Sequence[str],
        resumed: Resumed,
        *,
        fingerprint: str | None,
        once: bool,
        every_ms: int,
    ) -> None:
        """Read the results of the last run that are not known to be complete.

        Args:
            spark: The session of the query.
            location: Its checkpoint.
            sink: The options of its sink.
            topics: The output topics that are known.
            resumed: What its last run has left.
            fingerprint: What decides whether, how often and where rows are written; None if that cannot be told.
            once: Whether results must not be written twice.
            every_ms: How often to note how far the query has come; 0 to note only where batches begin.

        Raises:
            KafkaError: The brokers do not respond.
        """
        try:
            self._delivery = _kafka(spark).Delivery.open(
                classic_of(spark), location, dict(sink), list(topics), resumed.jvm, fingerprint, once, every_ms
            )
        except (PySparkException, Py4JJavaError) as failed:
            raise unanswered(sink, failed) from failed

    @property
    def guarded(self) -> int:
        """How many results of the last run exist and are not written again."""
        return int(self._delivery.guarded())

    @property
    def repeated(self) -> int:
        """How many results of the last run are written again, because other code made them."""
        return int(self._delivery.repeated())

    @property
    def unreadable(self) -> str:
        """Why the results of the last run cannot be read; empty if they can."""
        return str(self._delivery.unreadable())

    def close(self) -> None:
        """Forget a run that did not start."""
        self._delivery.abandon()


def _kafka(spark: SparkSession) -> Any:
    return jvm_of(spark).org.apache.spark.sql.kafka010.tailrace
