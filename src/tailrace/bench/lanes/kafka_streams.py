"""Kafka Streams, its DSL: a library in one JVM."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.bench.engines.engine import Engine
from tailrace.bench.engines.jvm import jvm_command, prepare_jvm
from tailrace.bench.engines.settings import (
    AS_ASKED,
    CONSUMER,
    EACH_PARTITION,
    PRODUCER,
    below,
    milliseconds,
    resolved,
)
from tailrace.bench.lane import Announce, Cell, Command
from tailrace.bench.work import Work

ENGINE = Engine("kafka-streams", "4.3.1", "Kafka Streams")

_SHARED: Mapping[str, str] = {
    "num.stream.threads": EACH_PARTITION,
    "processing.guarantee": "at_least_once",
    **below("consumer.", {**CONSUMER, "auto.offset.reset": "earliest"}),
    **below("producer.", PRODUCER),
}
_TUNED: Mapping[str, str] = {"statestore.cache.max.bytes": "0", "commit.interval.ms": AS_ASKED}
"""By default updates of a key wait in a cache of 10 MB until the next commit, half a minute at most, and only the last
goes out. Kafka Streams' documentation names a cache of zero where every update is wanted at once."""


@dataclass(frozen=True)
class StreamsLane:
    """An application of its own for each run."""

    name: str
    title: str
    tuned: bool
    merges: bool
    works: frozenset[Work] = frozenset({Work.STATELESS, Work.AGGREGATE})
    repartition: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """By Kafka Streams' own keys."""
        return {**_SHARED, **(_TUNED if self.tuned else {})}

    def prepare(self, announce: Announce) -> None:
        """Jars and the program."""
        prepare_jvm(ENGINE, announce)

    def versions(self) -> Mapping[str, str]:
        """Kafka Streams'."""
        return {"kafka-streams": ENGINE.version}

    def command(self, cell: Cell) -> Command:
        """The process of one run."""
        conf = {
            **resolved(self.settings, cell, milliseconds),
            "application.id": f"streams-{cell.source}",
            "state.dir": str(cell.folder / "state"),
        }
        given = {
            "work": cell.work.value,
            "bootstrap_servers": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "repartition": str(self.repartition).lower(),
            **below("conf.", conf),
        }
        return jvm_command(ENGINE, "tailrace.bench.StreamsLane", (), given)


LANES = (
    StreamsLane("kafka-streams", "Kafka Streams, its defaults", tuned=False, merges=True),
    StreamsLane("kafka-streams-tuned", "Kafka Streams, no record cache", tuned=True, merges=False),
    StreamsLane(
        "kafka-streams-repartition",
        "Kafka Streams, no record cache, through a repartition topic",
        tuned=True,
        merges=False,
        works=frozenset({Work.AGGREGATE}),
        repartition=True,
    ),
)
