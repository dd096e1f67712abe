"""Apache Flink, its DataStream API: job manager, task manager and job in one JVM."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.bench.engines.engine import Engine
from tailrace.bench.engines.jvm import jvm_command, prepare_jvm
from tailrace.bench.engines.settings import AS_ASKED, CONSUMER, EACH_PARTITION, PRODUCER, below, resolved
from tailrace.bench.lane import Announce, Cell, Command
from tailrace.bench.work import Work

ENGINE = Engine("flink", "2.2.1", "Apache Flink")

OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        *("java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util"),
        *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"),
    )
)
"""What Flink's own start scripts give to a Java of 17 or newer."""

LOOPBACK: Mapping[str, str] = {
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
}
"""Nothing of a benchmark is to be reached from elsewhere."""

SHARED: Mapping[str, str] = {
    "parallelism.default": EACH_PARTITION,
    # With checkpoints Flink would restart a job that fails for ever, and a lane that fails is to say so.
    "restart-strategy.type": "none",
    **LOOPBACK,
}
TUNED: Mapping[str, str] = {
    "execution.buffer-timeout.interval": "0 ms",
    "execution.checkpointing.interval": AS_ASKED,
    "pipeline.object-reuse": "true",
}
"""Flink's documentation on latency: send each record on at once, and do not copy it between operators."""


def flink_interval(seconds: float) -> str:
    """A time as Flink writes it."""
    return f"{round(seconds * 1000)} ms"


@dataclass(frozen=True)
class FlinkLane:
    """A Flink of its own for each run."""

    name: str
    title: str
    tuned: bool
    works: frozenset[Work] = frozenset({Work.STATELESS, Work.AGGREGATE})
    merges: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """Flink's by its own keys; those of the two Kafka clients below ``consumer.`` and ``producer.``."""
        flink = {**SHARED, **(TUNED if self.tuned else {})}
        kafka = {**below("consumer.", CONSUMER), **below("producer.", PRODUCER)}
        return {**flink, **kafka, "sink.delivery-guarantee": "at-least-once", "scan.startup.mode": "earliest-offset"}

    def prepare(self, announce: Announce) -> None:
        """Jars and the program."""
        prepare_jvm(ENGINE, announce)

    def versions(self) -> Mapping[str, str]:
        """Flink's."""
        return {"flink": ENGINE.version}

    def command(self, cell: Cell) -> Command:
        """The process of one run."""
        flink = {**SHARED, **(TUNED if self.tuned else {})}
        conf = {**resolved(flink, cell, flink_interval), "io.tmp.dirs": str(cell.folder)}
        if self.tuned:
            conf["execution.checkpointing.dir"] = (cell.folder / "checkpoints").as_uri()
        given = {
            "work": cell.work.value,
            "bootstrap_servers": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "group": f"flink-{cell.source}",
            **below("conf.", conf),
            **below("consumer.", CONSUMER),
            **below("producer.", PRODUCER),
        }
        return jvm_command(ENGINE, "tailrace.bench.FlinkLane", OPENED, given)


LANES = (
    FlinkLane("flink", "Flink, its defaults", tuned=False),
    FlinkLane("flink-tuned", "Flink, buffer timeout 0, with checkpoints", tuned=True),
)
