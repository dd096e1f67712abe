"""A Python function between two Kafka topics on PyFlink. Runs in its own environment, without Tailrace.

Arguments are ``key=value``. Those that begin with ``conf.`` go to Flink as they are, those with ``source.`` and
``sink.`` to the two Kafka clients.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found]
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]
from pyflink.table.udf import ScalarFunction, udf  # type: ignore[import-not-found]


class Score(ScalarFunction):  # type: ignore[misc]
    """The function, with the mode in which it must run."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def open(self, context: Any) -> None:  # noqa: ARG002 - PyFlink calls it so
        """Refuse another mode: if PyFlink cannot use thread mode, it silently falls back to processes."""
        inside_java = "pemja" in sys.modules
        if inside_java != (self.mode == "thread"):
            raise RuntimeError(f"asked for {self.mode} mode, but process {os.getpid()} is of the other")

    def eval(self, amount: float) -> float:
        """Compute the work."""
        return min(1.0, math.log1p(amount) / 10)


def options(given: dict[str, str], prefix: str) -> str:
    """Return the arguments below a prefix as options of a table."""
    wanted = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    return "".join(f", 'properties.{key}' = '{value}'" for key, value in wanted.items())


def keep_to_loopback(jvm: Any) -> None:
    """Make sockets of that JVM that would bind to every address bind to loopback.

    In process mode Beam, which PyFlink talks to its Python processes with, opens a dozen ports on every address of the
    machine, and has no setting for it. What "every address" is, Java keeps in one field.
    """
    loopback = jvm.java.net.InetAddress.getLoopbackAddress()
    holder = jvm.java.lang.Class.forName("java.net.InetAddress").getDeclaredField("impl")
    holder.setAccessible(True)
    field = holder.get(None).getClass().getDeclaredField("anyLocalAddress")
    field.setAccessible(True)
    field.set(holder.get(None), loopback)
    if not jvm.java.net.InetSocketAddress(0).getAddress().isLoopbackAddress():
        raise RuntimeError("PyFlink's ports cannot be kept to this machine on this Java")


def below(root: int) -> list[int]:
    """Return the descendants of a process."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout  # noqa: S607
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    tree = [root]
    for parent in tree:
        tree += [process for process, its_parent in pairs if its_parent == parent]
    return tree[1:]


def end(java: int) -> None:
    """End the JVM and its Python processes and wait for them, so that the next lane has the machine to itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    workers = below(java)
    deadline = time.monotonic() + 6
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(java, signal.SIGTERM)
        while time.monotonic() < deadline and os.waitpid(java, os.WNOHANG) == (0, 0):
            time.sleep(0.05)
        os.kill(java, signal.SIGKILL)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def main() -> None:
    """Start the job and wait for its end, which SIGTERM brings."""
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    jvm = get_gateway().jvm
    java = jvm.java.lang.ProcessHandle.current().pid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        keep_to_loopback(jvm)
        run(given)
    finally:
        end(java)


def run(given: dict[str, str]) -> None:
    """Run the job."""
    conf = Configuration()
    for key, value in given.items():
        if key.startswith("conf."):
            conf.set_string(key.removeprefix("conf."), value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(conf).build()
    )
    kafka = f"'connector' = 'kafka', 'properties.bootstrap.servers' = '{given['bootstrap_servers']}'"
    tables.execute_sql(f"""
        CREATE TABLE events (id BIGINT, sent_ns BIGINT, `key` STRING, amount DOUBLE) WITH (
            {kafka}, 'topic' = '{given["source"]}', 'properties.group.id' = '{given["group"]}',
            'scan.startup.mode' = 'earliest-offset', 'value.format' = 'json' {options(given, "source.")}
        )""")
    tables.execute_sql(f"""
        CREATE TABLE scores (id BIGINT, sent_ns BIGINT, `key` STRING, score DOUBLE) WITH (
            {kafka}, 'topic' = '{given["sink"]}', 'key.format' = 'raw', 'key.fields' = 'key', 'value.format' = 'json',
            'sink.delivery-guarantee' = 'at-least-once' {options(given, "sink.")}
        )""")
    mode = given.get("conf.python.execution-mode", "process")
    tables.create_temporary_function("score", udf(Score(mode), result_type=DataTypes.DOUBLE()))
    query = "INSERT INTO scores SELECT id, sent_ns, `key`, score(amount) FROM events WHERE amount >= 0"
    tables.execute_sql(query).wait()


if __name__ == "__main__":
    main()
