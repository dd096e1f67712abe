"""What single features cost: lineage, and a static table in a broadcast join.

Lineage: the demo's pipeline in real time with and without it, on one broker and one Spark, with the same load and
probe. The two lanes alternate, and each has its own topics and checkpoint.

Static table: one pipeline that joins parquet tables of several sizes. In real time Spark reads and broadcasts the table
again at every checkpoint. The cost is how much longer than the checkpoint interval a batch takes, by Spark's own
progress reports.
"""

import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tailrace.demo.fraud import pipeline as fraud
from tailrace.demo.run import payments_plan, pipeline_lane
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import create_topic
from tailrace.measure.lane import Announce
from tailrace.measure.screen import ms
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.prepare.options import RunOptions
from tailrace.running.start import start_query
from tailrace.spark_session import end_session, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.report.result import LaneResult

PARTITIONS = 2
INTERVAL_S = 5
SKIPPED = 2
"""The first batches, which compile, do not count."""


@dataclass(frozen=True)
class LineageOptions:
    """The options of the study."""

    rounds: int = 4
    seconds: float = 20
    warmup: float = 10
    rate: float = 2000


@dataclass(frozen=True)
class StudyMachine:
    """The machine of a study."""

    cpu_count: int | None = field(default_factory=os.cpu_count)
    system: str = field(default_factory=platform.platform)
    python: str = field(default_factory=platform.python_version)


@dataclass(frozen=True)
class LineageCost:
    """What lineage costs.

    Attributes:
        options: The options of the study.
        lanes: Every run with lineage (``on``) and without it (``off``).
        machine: Where it was measured.
    """

    options: LineageOptions
    lanes: Mapping[str, Sequence["LaneResult"]]
    machine: StudyMachine = field(default_factory=StudyMachine)

    def median_p50_ms(self, lane: str) -> float:
        """Return the median of a lane's runs."""
        return statistics.median(each.p50_ms for each in self.lanes[lane] if each.p50_ms is not None)

    @property
    def p50_difference_ms(self) -> float:
        """How much more the median record takes with lineage."""
        return self.median_p50_ms("on") - self.median_p50_ms("off")

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``lineage.json``."""
        return {
            "settings": asdict(self.options) | {"partitions": PARTITIONS},
            "machine": asdict(self.machine),
            "lanes": {lane: [each.as_json() for each in results] for lane, results in self.lanes.items()},
            "p50_difference_ms": round(self.p50_difference_ms, 3),
        }


@dataclass(frozen=True)
class TableCost:
    """How much longer than the interval the batches took with a table of one size, in milliseconds."""

    median_ms: float
    each_ms: list[float]


@dataclass(frozen=True)
class StaticTableCosts:
    """What static tables cost at each checkpoint, by their number of rows; 0 is the pipeline without a join."""

    rows: Mapping[int, TableCost]
    machine: StudyMachine = field(default_factory=StudyMachine)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``static-table.json``."""
        rows = {str(size): asdict(cost) for size, cost in self.rows.items()}
        return {"interval_s": INTERVAL_S, "machine": asdict(self.machine), "rows": rows}


def measure_lineage(options: LineageOptions, announce: Announce) -> LineageCost:
    """Run both lanes several times."""
    rounds: dict[str, list[LaneResult]] = {"on": [], "off": []}
    with temporary_broker(announce) as broker:
        client = plain_client(broker.bootstrap_servers)
        plan = payments_plan(options.rate, options.seconds, options.warmup)
        session("bench-lineage", master=f"local[{PARTITIONS}]", conf={"spark.ui.enabled": "false"})
        # The first round also compiles the hot code of both JVMs, so it does not count.
        for number in range(options.rounds + 1):
            for lane in list(rounds) if number % 2 else list(reversed(rounds)):
                run = RunOptions(
                    bootstrap_servers=broker.bootstrap_servers, checkpoint=broker.scratch / f"{lane}-{number}"
                )
                pipeline = replace(fraud, lineage=lane == "on")
                topics = (f"{lane}-{number}", PARTITIONS)
                result = pipeline_lane(plan, client, topics, pipeline, run, lambda _: None)
                announce(f"round {number}  lineage {lane:<3}  p50 {ms(result.p50_ms)}   p99 {ms(result.p99_ms)} ms")
                if number > 0:
                    rounds[lane].append(result)
        end_session()
    cost = LineageCost(options, rounds)
    announce(
        f"median p50: with lineage {cost.median_p50_ms('on'):.2f} ms, without {cost.median_p50_ms('off'):.2f} ms, "
        f"difference {cost.p50_difference_ms:+.2f} ms"
    )
    return cost


def measure_static_tables(sizes: Sequence[int], checkpoints: int, announce: Announce) -> StaticTableCosts:
    """Measure a join with a table of each size; a size of 0 is the pipeline without a join."""
    rows: dict[int, TableCost] = {}
    with temporary_broker(announce) as broker:
        client = plain_client(broker.bootstrap_servers)
        for topic in ("payments", "out"):
            create_topic(client, topic, 2)
        spark = session("bench-static", master="local[4]", conf={"spark.ui.enabled": "false"})
        for size in sizes:
            table = str(broker.scratch / f"table-{size}")
            spark.range(size).selectExpr("cast(id as string) as card", "id % 7 as level").write.parquet(table)
            options = RunOptions(
                bootstrap_servers=broker.bootstrap_servers,
                checkpoint=broker.scratch / f"c{size}",
                checkpoint_every=f"{INTERVAL_S}s",
            )
            over_ms = _over_the_interval_ms(_pipeline(size, table), options, checkpoints)
            rows[size] = TableCost(statistics.median(over_ms), over_ms)
            name = f"{size:,} rows" if size else "no join"
            announce(f"{name:>16}: {rows[size].median_ms:>6.0f} ms beyond the interval, at each checkpoint")
        end_session()
    return StaticTableCosts(rows)


def _pipeline(size: int, table: str) -> Pipeline:
    def enrich(payments: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        if not size:
            return payments
        return payments.join(F.broadcast(payments.sparkSession.read.parquet(table)), "card", "left")

    return Pipeline(
        name=f"static-{size}",
        source=KafkaSource("payments", "id long, card string"),
        transform=enrich,
        sink=KafkaSink("out"),
    )


def _over_the_interval_ms(pipeline: Pipeline, options: RunOptions, checkpoints: int) -> list[float]:
    """Return how much longer than the interval each batch took, in milliseconds."""
    with start_query(pipeline, options) as running:
        while len(running.query.recentProgress) < checkpoints + SKIPPED:
            running.raise_if_failed()
            time.sleep(0.5)
        progress = [dict(each) for each in running.query.recentProgress]
    return [each["durationMs"]["triggerExecution"] - INTERVAL_S * 1000 for each in progress[SKIPPED:]]
