"""Whether Spark's JVM is gone, with another process in its place."""

import socket
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import AnalysisException

from tailrace.engine import gateway, has_jvm_ended

LOST = Py4JNetworkError("Answer from Java side is empty")
UNCLEAR = Py4JError("An error occurred while calling o42.stop")
"""What py4j raises for the first call that loses its connection, and for a call that it cannot make."""


def use(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", fake)
    monkeypatch.setattr(gateway, "_EXIT_TIMEOUT_S", 0.05)


def test_a_process_that_has_exited_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as process:
        use(monkeypatch, SimpleNamespace(proc=process))
        process.wait(10)
        assert has_jvm_ended(LOST)
        assert has_jvm_ended(UNCLEAR)
        assert has_jvm_ended(ConnectionRefusedError())


def test_a_process_that_runs_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        use(monkeypatch, SimpleNamespace(proc=process))
        assert not has_jvm_ended(LOST)
        assert not has_jvm_ended(UNCLEAR)


def test_a_jvm_that_answered_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    assert has_jvm_ended(LOST)
    assert not has_jvm_ended(AnalysisException("[TABLE_OR_VIEW_NOT_FOUND]"))
    assert not has_jvm_ended(Py4JJavaError.__new__(Py4JJavaError))


def test_a_jvm_that_another_process_started_is_gone_if_its_port_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        use(monkeypatch, SimpleNamespace(gateway_parameters=SimpleNamespace(address=address, port=port)))
        assert not has_jvm_ended(LOST)
    assert has_jvm_ended(LOST)
