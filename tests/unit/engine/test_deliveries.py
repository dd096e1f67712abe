"""What a start says if a checkpoint cannot be continued, or no broker answers; without Spark."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tailrace.engine import Delivery, Resumed, deliveries, resume
from tailrace.errors import BrokerUnreachable, CheckpointError

SPARK: Any = None
RESUMED = Resumed(knows_results=False, is_closed=False, fingerprint="", advanced=0, unused="", is_fresh=True, jvm=None)


class JavaException:
    """An exception of the JVM, and its cause."""

    def __init__(self, text: str, cause: "JavaException | None" = None) -> None:
        self._text = text
        self._cause = cause

    def toString(self) -> str:  # noqa: N802 - Java's name
        return self._text

    def getCause(self) -> "JavaException | None":  # noqa: N802 - Java's name
        return self._cause


class Engine:
    """A JVM in which every call fails."""

    def __init__(self, failed: JavaException) -> None:
        self.error = Py4JJavaError.__new__(Py4JJavaError)
        self.error.java_exception = failed

    @property
    def ProgressResume(self) -> Any:  # noqa: N802 - Scala's name
        raise self.error

    @property
    def Delivery(self) -> Any:  # noqa: N802 - Scala's name
        raise self.error


def test_a_note_that_cannot_be_used_is_named_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    full = JavaException("org.apache.spark.SparkException: failed", JavaException("java.io.IOException: No space left"))
    monkeypatch.setattr(deliveries, "_kafka", lambda _: Engine(full))
    with pytest.raises(CheckpointError, match="what the last run has noted in /data/fraud cannot be used") as refused:
        resume(SPARK, "/data/fraud")
    assert refused.value.why == "java.io.IOException: No space left"
    assert "--checkpoint DIR" in refused.value.fix


def test_a_broker_that_does_not_answer_is_an_error_about_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = JavaException("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment")
    monkeypatch.setattr(deliveries, "_kafka", lambda _: Engine(timeout))
    monkeypatch.setattr(deliveries, "classic_of", lambda _: None)
    sink = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        Delivery(SPARK, "/data/fraud", sink, ["out"], RESUMED, fingerprint="f", once=True, every_ms=1000)
