"""What all lanes that run Spark have in common."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.bench.lane import Announce, Cell, Command
from tailrace.bench.spark_lane import SparkSettings, spark_command
from tailrace.bench.work import Work
from tailrace.spark_session import write_spark_archive
from tailrace.toolchain import ArchiveNotWrittenError, ensure_engine, ensure_jars, ensure_java, pyspark_version


@dataclass(frozen=True)
class SparkLane:
    """A lane whose process is a Spark."""

    name: str
    title: str
    works: frozenset[Work]
    runs: SparkSettings
    settings: Mapping[str, str] = field(default_factory=dict)
    merges: bool = False

    def prepare(self, announce: Announce) -> None:
        """Java and jars, and where Tailrace runs the engine and the class archive."""
        java = ensure_java(announce)
        jars = ensure_jars(java, ["connector"], announce)["connector"]
        if self.runs.tailrace:
            ensure_engine(java, jars, announce)
            # Now: the first session without one writes it beside what it runs, which here is measured.
            with contextlib.suppress(ArchiveNotWrittenError):
                write_spark_archive(announce)

    def versions(self) -> Mapping[str, str]:
        """Spark's."""
        return {"pyspark": pyspark_version()}

    def command(self, cell: Cell) -> Command:
        """The process of one run."""
        return spark_command(self.runs, cell)
