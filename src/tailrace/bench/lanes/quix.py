"""Quix Streams, its StreamingDataFrame: a library in plain Python."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.bench.engines.engine import Engine
from tailrace.bench.engines.settings import AS_ASKED, CONSUMER, EACH_PARTITION, PRODUCER, arguments, below, resolved
from tailrace.bench.engines.venv import ensure_venv, venv_python
from tailrace.bench.lane import Announce, Cell, Command
from tailrace.bench.work import Work

ENGINE = Engine("quix", "3.28.1", "Quix Streams")

# librdkafka has another name for one of the settings.
_CONSUMER = {"fetch.wait.max.ms" if key == "fetch.max.wait.ms" else key: value for key, value in CONSUMER.items()}
_SHARED: Mapping[str, str] = {
    "auto_offset_reset": "earliest",
    "processing_guarantee": "at-least-once",
    **below("consumer_extra_config.", _CONSUMER),
    **below("producer_extra_config.", PRODUCER),
}
_TUNED: Mapping[str, str] = {"processes": EACH_PARTITION, "commit_interval": AS_ASKED}
"""One process handles one record at a time. Quix Streams scales, as a Kafka consumer does, by more processes in the
group. At each commit it flushes the producer, writes the state and commits the offsets while records wait."""


@dataclass(frozen=True)
class QuixLane:
    """An application of its own for each run."""

    name: str
    title: str
    tuned: bool
    works: frozenset[Work] = frozenset({Work.STATELESS, Work.AGGREGATE, Work.PYTHON})
    merges: bool = False

    @property
    def settings(self) -> Mapping[str, str]:
        """By the names of the application's parameters; ``processes`` is how many of them there are."""
        return {**_SHARED, **(_TUNED if self.tuned else {"processes": "1"})}

    def prepare(self, announce: Announce) -> None:
        """Its Python environment."""
        with ENGINE.set_up(announce):
            ensure_venv(ENGINE, None, announce)

    def versions(self) -> Mapping[str, str]:
        """Quix Streams'."""
        return {"quixstreams": ENGINE.version}

    def command(self, cell: Cell) -> Command:
        """The process of one run."""
        given = {
            "work": cell.work.value,
            "broker_address": cell.bootstrap_servers,
            "source": cell.source,
            "sink": cell.sink,
            "consumer_group": f"quix-{cell.source}",
            "state_dir": str(cell.folder / "state"),
            **resolved(self.settings, cell, str),
        }
        # Isolated: neither the user's PYTHONPATH nor the current folder is to lend it modules.
        program = (str(venv_python(ENGINE)), "-I", str(ENGINE.programs / "quix_lane.py"))
        return Command((*program, *arguments(given)))


LANES = (
    QuixLane("quix", "Quix Streams, its defaults", tuned=False),
    QuixLane("quix-tuned", "Quix Streams, a process per partition", tuned=True),
)
