"""Access to Spark's JVM, only for the other modules of this package."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

_EXIT_TIMEOUT_S = 2.0
"""A killed process closes its connections a moment before it ends."""


def jvm_of(spark: SparkSession) -> Any:
    """Return py4j's view of Spark's JVM."""
    return spark._jvm


def running_jvm() -> Any:
    """Return py4j's view of the running JVM without starting one; it also works after Spark was stopped."""
    return SparkContext._jvm


def has_jvm_ended(failed: BaseException) -> bool:
    """Return whether a call failed because Spark's JVM has ended.

    py4j raises the same ``Py4JError`` for a lost connection as for a call that it cannot make, so the process decides;
    if it is not a child of this one, the gateway's port does.
    """
    if isinstance(failed, Py4JJavaError) or not isinstance(failed, Py4JError | OSError):
        return False  # the JVM answered
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return True
    process = getattr(gateway, "proc", None)
    return _has_exited(process) if process is not None else _refuses_connections(gateway.gateway_parameters)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_TIMEOUT_S)
    return process.returncode is not None


def _refuses_connections(parameters: Any) -> bool:
    try:
        socket.create_connection((parameters.address, parameters.port), _EXIT_TIMEOUT_S).close()
    except OSError as failed:
        return isinstance(failed, ConnectionRefusedError)
    return False


def tailrace_of(spark: SparkSession) -> Any:
    """Return the Scala package of the engine."""
    return jvm_of(spark).org.apache.spark.sql.tailrace


def classic_of(spark: SparkSession) -> Any:
    """Return the JVM's session object."""
    return spark._jsparkSession


def elements(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def private_field(holder: Any, name: str) -> Any:
    """Return the value of a private field."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
