"""A start after a crash writes exactly what is missing, in either mode, and says so where it cannot.

Several pipelines crash at once, in their first batch or a later one, and each test continues one of them. `make soak`
tries more: stock Spark in between, every kind of change to the code, at-least-once, results that are gone.
"""

import json
import os
import secrets
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from crashes import (
    Case,
    Crashing,
    Output,
    committed,
    expected,
    lost_and_repeated,
    output_count,
    remove_outputs,
    written,
)
from load import Load
from notes import note_of, noted_at
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tailrace.errors import DeliveryRefused
from tailrace.kafka.broker import Broker
from tailrace.prepare.options import RunOptions
from tailrace.running.run import run_query

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

PER_SECOND = 200
RUNS_S = 4.0
"""How long all pipelines run before the crash."""
EARLY = "early"
"""The pipeline that crashes with its first output."""
CHANGES: dict[str, dict[str, Any]] = {
    "function": {"factor": 3},
    "topic": {},
    "filter": {"dropped": 4},
    "explode": {"copies": 4},
}
SOAK = int(os.environ.get("TAILRACE_RESTARTS", "2")) > 2
in_soak = pytest.mark.skipif(not SOAK, reason="each pipeline takes its time: make soak")
CHANGED = list(CHANGES) if SOAK else ["function"]
"""The pipelines whose code is another one after the crash."""
NAMES = ("once", "twice", "modes", *CHANGED, "bare", *(("stock", "weaker", "removed") if SOAK else ()))
SAVED = ("once", "modes", "stock")
"""The pipelines that have saved batches when they crash; the others are in their first one."""


class Numbers(Load):
    """Sends numbers; some records are malformed."""

    def _value(self, number: int) -> bytes:
        return b"oops" if number % 100 == 50 else super()._value(number)


@dataclass
class Crashed:
    """Pipelines after their crash."""

    kafka: Kafka
    folder: Path
    cases: dict[str, Case]
    unnoted_s: float = 0.0
    """How old the oldest last note was at the first crash."""
    spoken: list[str] = field(default_factory=list)
    """What the last start has announced."""

    def crash(self, *cases: Case, seconds: float, late: Case | None = None) -> None:
        """Run pipelines under load and kill them; the last one as soon as it has written something."""
        crashing = Crashing(self.folder, self.kafka.bootstrap_servers, cases, late)
        before = {case.name: output_count(self.kafka.config, case) for case in cases}

        def has_written(case: Case) -> bool:
            return output_count(self.kafka.config, case) > before.get(case.name, 0)

        with Numbers(self.kafka, [cases[0].source], PER_SECOND), crashing.running():
            for case in cases:
                wait_until(lambda case=case: has_written(case), 60, f"an output of {case.name}")
            time.sleep(seconds)
            if late is not None:
                crashing.go()
                wait_until(lambda: has_written(late), 60, f"an output of {late.name}")
            at = time.time()
        self.unnoted_s = self.unnoted_s or max(at - noted_at(case.checkpoint) for case in cases)

    def go_on(self, case: Case, mode: str = "realtime", delivery: str | None = None) -> None:
        """Start a pipeline again and process everything."""
        self.spoken.clear()
        options = RunOptions(
            mode,  # type: ignore[arg-type]
            bootstrap_servers=self.kafka.bootstrap_servers,
            checkpoint=case.checkpoint,
            delivery=delivery or case.delivery,  # type: ignore[arg-type]
            tasks=1,
            once=True,
        )
        run_query(case.pipeline(), options, announce=self.spoken.append)

    def counts(self, case: Case) -> tuple[int, int]:
        """How many outputs are lost and how many repeated."""
        return lost_and_repeated(expected(self.kafka.config, case), written(self.kafka.config, case))

    def positions(self, case: Case) -> dict[int, int]:
        """The offset of each partition before which the last run has noted everything as done."""
        (positions,) = (json.loads(text)[case.source] for text in note_of(case.checkpoint)["positions"])
        return {int(partition): offset for partition, offset in positions.items()}

    def unnoted(self, case: Case) -> "Counter[Output]":
        """The outputs about records that the last note does not cover."""
        done, existing = self.positions(case), written(self.kafka.config, case)
        return Counter({each: n for each, n in existing.items() if each.offset >= done[each.partition]})

    def said(self, words: str) -> str:
        """The one line that has these words."""
        (line,) = (line for line in self.spoken if words in line)
        return line


@pytest.fixture(scope="module")
def crashed(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    kafka, folder = Kafka(broker.bootstrap_servers), tmp_path_factory.mktemp("crashed")
    source, run = kafka.topic("numbers", 2), secrets.token_hex(4)
    cases = {
        name: Case(
            name,
            source,
            f"{name}-{run}",
            str(folder / name),
            checkpoint_every="2s" if name in SAVED else "5m",
            delivery="at-least-once" if name == "weaker" else None,
        )
        for name in (*NAMES, EARLY)
    }
    for case in cases.values():
        case.create(kafka.config)
    all_of = Crashed(kafka, folder, cases)
    all_of.crash(*(cases[name] for name in NAMES), seconds=RUNS_S, late=cases[EARLY])
    for name, case in cases.items():
        assert (committed(case.checkpoint) >= 0) is (name in SAVED), name
        assert note_of(case.checkpoint)["isRealTime"]
        lost, repeated = all_of.counts(case)
        assert lost > 0, "the load has gone on, or the test proves nothing"
        assert repeated == 0
    return all_of


@pytest.mark.parametrize("name", ["once", EARLY])
def test_a_crash_in_real_time_loses_and_repeats_nothing(crashed: Crashed, name: str) -> None:
    case = crashed.cases[name]
    crashed.go_on(case, delivery="effectively-once")
    assert crashed.counts(case) == (0, 0), crashed.spoken
    before = output_count(crashed.kafka.config, case)
    crashed.go_on(case, delivery="effectively-once")
    assert not any("exist" in line or "again" in line for line in crashed.spoken), "a saved end leaves nothing open"
    assert output_count(crashed.kafka.config, case) == before


def test_a_second_crash_while_the_results_of_the_first_are_met_and_one_in_micro_batch(crashed: Crashed) -> None:
    """Both modes continue after the other's crash: real time, micro-batch, real time."""
    twice, modes = crashed.cases["twice"], replace(crashed.cases["modes"], mode="microbatch")
    crashed.crash(twice, modes, seconds=1.0)
    assert [note_of(each.checkpoint)["isRealTime"] for each in (twice, modes)] == [True, False]
    for case in (twice, modes):
        crashed.go_on(case, delivery="effectively-once")
        assert crashed.counts(case) == (0, 0), (case.name, crashed.spoken)


@in_soak
def test_spark_alone_between_two_runs(spark: SparkSession, crashed: Crashed) -> None:
    """Spark knows nothing of notes: it repeats what came after its last checkpoint, and what follows is exact again."""
    case, config = crashed.cases["stock"], crashed.kafka.config
    kept = {each for each in written(config, case) if each.topic != case.dead}
    stock_run(spark, crashed.kafka, case)
    crashed.kafka.send(case.source, [{"a": number} for number in range(1_000_000, 1_000_200)])
    crashed.go_on(case, delivery="effectively-once")
    wanted, named = expected(config, case), written(config, case)
    by_spark = Counter((each.topic, each.value) for each in written(config, case, named=False).elements())
    assert max(by_spark.values()) == 1
    assert max(named.values()) == 1
    found = Counter((each.topic, each.value) for each in named) + by_spark
    results = Counter((each.topic, each.value) for each in wanted if each.topic != case.dead)
    assert not results - found, "nothing is lost"
    assert found.total() - results.total() <= len(kept), "only what had been written before the crash is there twice"


def stock_run(spark: SparkSession, kafka: Kafka, case: Case) -> None:
    """The results with Spark alone on the same checkpoint, without records whose failure Spark cannot set aside."""
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    records = spark.readStream.format("kafka").options(**servers, subscribe=case.source).load()
    numbers = records.select(F.get_json_object(F.col("value").cast("string"), "$.a").cast("long").alias("a"))
    kept = numbers.where(f"a is not null and a % 10 <> {case.dropped} and a % 40 <> 8")
    rows = kept.select(
        (F.col("a") * case.factor).alias("b"), F.expr(f"explode(sequence(0, a % {case.copies}))").alias("copy")
    )
    topic = F.concat(F.lit(f"{case.prefix}-"), (F.col("copy") % 3).cast("string"))
    results = rows.select(topic.alias("topic"), F.to_json(F.struct("b", "copy")).alias("value"))
    writer = results.writeStream.format("kafka").options(**servers, checkpointLocation=case.checkpoint)
    query = writer.queryName("stock").outputMode("append").trigger(availableNow=True).start()
    assert query.awaitTermination(120)


@pytest.mark.parametrize("name", CHANGED)
def test_changed_code_loses_nothing_and_says_how_much_it_may_repeat(crashed: Crashed, name: str) -> None:
    old, config = crashed.cases[name], crashed.kafka.config
    new = replace(old, **CHANGES[name])
    if name == "topic":
        new = replace(old, prefix=f"{old.prefix}-new")
        new.create(config)
    done, before = crashed.positions(old), written(config, old)
    unnoted = Counter({each: n for each, n in before.items() if each.offset >= done[each.partition]})
    crashed.go_on(new)
    said = int(crashed.said("may be written again").split(": ")[1].split()[0].replace(",", ""))
    assert said >= unnoted.total() > 0
    # What the old code had finished stays as it was; the new code does all the rest.
    wanted = Counter({each: n for each, n in expected(config, old).items() if each.offset < done[each.partition]})
    wanted += Counter({each: n for each, n in expected(config, new).items() if each.offset >= done[each.partition]})
    found = written(config, old) if new.topics == old.topics else written(config, old) + written(config, new)
    lost, repeated = lost_and_repeated(wanted, found)
    assert lost == 0
    assert repeated == unnoted.total(), "what the old code wrote about the records that the new code has done again"


@in_soak
def test_at_least_once_repeats_what_the_last_note_does_not_cover(crashed: Crashed) -> None:
    case = crashed.cases["weaker"]
    unnoted = crashed.unnoted(case)
    assert crashed.unnoted_s < 4, "the progress is noted each second, and the machine is busy"
    crashed.go_on(case)
    lost, repeated = crashed.counts(case)
    assert lost == 0
    assert repeated == unnoted.total() > 0
    assert not any("again" in line for line in crashed.spoken)


def refused(crashed: Crashed, case: Case) -> str:
    """Why effectively-once delivery is refused."""
    before = output_count(crashed.kafka.config, case)
    with pytest.raises(DeliveryRefused, match="cannot tell which results of its last run exist") as error:
        crashed.go_on(case, delivery="effectively-once")
    assert output_count(crashed.kafka.config, case) == before
    return str(error.value.why)


def test_a_checkpoint_without_a_note(crashed: Crashed) -> None:
    """As a version without notes leaves it."""
    case = crashed.cases["bare"]
    shutil.rmtree(Path(case.checkpoint) / "tailrace-progress")
    why = refused(crashed, case)
    assert why == "the last run kept no note of them"
    before = written(crashed.kafka.config, case).total()
    crashed.go_on(case)
    assert crashed.said("may be written again").endswith(f": {why}.")
    assert crashed.counts(case) == (0, before), "the whole first batch, for which nothing was saved"


@in_soak
def test_outputs_that_retention_has_removed(crashed: Crashed) -> None:
    case, config = crashed.cases["removed"], crashed.kafka.config
    unnoted, before = crashed.unnoted(case), written(config, case)
    topic = f"{case.prefix}-1"
    remove_outputs(config, topic)
    why = refused(crashed, case)
    assert topic in why
    assert "begins at" in why
    crashed.go_on(case)
    assert crashed.said("may be written again").endswith(f": {why}.")
    removed = Counter({each: n for each, n in before.items() if each.topic == topic})
    assert lost_and_repeated(expected(config, case), written(config, case) + removed) == (0, unnoted.total())
