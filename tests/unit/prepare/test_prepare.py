"""The path that check and start share, with a target and a Spark that are not there."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.checkpoint import Checkpoint, Owner
from tailrace.engine import Resumed
from tailrace.errors import (
    CheckpointInUse,
    DefinitionError,
    QueryRefused,
    SlotsMissing,
    ToolchainError,
    TopicMissing,
)
from tailrace.pipeline import Mode
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.operator import Operator
from tailrace.plan.refusal import Refusal
from tailrace.plan.slots import Capacity, Slots
from tailrace.preflight.query import Query, Saved
from tailrace.prepare import prepare as preparation
from tailrace.prepare.findings import Findings
from tailrace.prepare.options import RunOptions
from tailrace.prepare.prepare import Prepared, prepare, target_of
from tailrace.prepare.target import BuiltQuery

REFUSED = Refusal("SOME_RULE", "Spark does not want it", {})
OWNER = Owner("fraud", ("payments",), "decisions")

RESUMED = Resumed(knows_results=False, is_closed=False, fingerprint="", advanced=0, unused="", is_fresh=True, jvm=None)


@dataclass
class FakeSpark:
    slots: int


@dataclass
class FakeTarget:
    """A target that notes its steps."""

    folder: Path
    partitions: int = 2
    shuffles: int = 0
    pinned: int | None = None
    """The shuffle partitions of its checkpoint."""
    missing_topic: bool = False
    refused_in: set[Mode] = field(default_factory=set)
    delivery: DeliveryPlan | None = None
    bounded: list[bool] = field(default_factory=list)
    fail_on_data_loss: list[bool | None] = field(default_factory=list)
    """For each query that was built, whether it ends by itself in real time."""
    restartable: bool = True
    name: str = "fraud"
    rights_unknown: set[str] = field(default_factory=set)
    steps: list[str] = field(default_factory=list)
    owner: Owner = OWNER
    sources: int = 1
    tasks_built: list[int | None] = field(default_factory=list)
    """For each query that was built, the most tasks that read its source."""
    spark: FakeSpark = field(default_factory=lambda: FakeSpark(2))

    def look_up(self, _options: RunOptions, findings: Findings) -> None:
        self.steps.append("look up")
        findings.ask(self._topics)

    def tasks(self, most: int | None, _reads: Sequence[int] = ()) -> int:
        return self.partitions if most is None else min(self.partitions, most)

    def _topics(self) -> None:
        if self.missing_topic:
            raise TopicMissing("topic 'payments' does not exist")

    def checkpoint(self, _options: RunOptions, _findings: Findings) -> Checkpoint:
        return Checkpoint(self.folder)

    def session(self, _options: RunOptions, _announce: object) -> tuple[Any, bool]:
        self.steps.append("session")
        return self.spark, self.restartable

    def look_up_by(self, _spark: object, _findings: Findings, _checkpoint: Checkpoint) -> None:
        self.steps.append("look up by Spark")

    def sink_facts(self) -> Any:
        raise AssertionError("the facts are not gathered here")

    def create_topics(self, _announce: object) -> None:
        self.steps.append("create topics")

    def build(self, _own: object, options: RunOptions) -> BuiltQuery:
        self.steps.append(f"build {options.planned_mode}")
        built: Any = FakeBuilt(self)
        return built


@dataclass
class FakeBuilt:
    """A query that was built for a target."""

    target: FakeTarget
    frame: object = None

    def controlled(
        self, *, realtime: bool, bounded: bool, tasks: int | None, fail_on_data_loss: bool | None
    ) -> "FakeBuilt":
        self.target.bounded.append(bounded)
        self.target.fail_on_data_loss.append(fail_on_data_loss)
        self.target.tasks_built.append(tasks)
        return self


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(target: Any, _built: object, own: Any, options: RunOptions, saved: Any, **_: object) -> Query:
        plan = Operator("RealTimeStreamScan", None, ())
        refusals = (REFUSED,) if options.planned_mode in target.refused_in else ()
        tasks = target.tasks(options.source_tasks)
        slots = Slots((tasks, *[target.pinned or tasks] * target.shuffles))
        saved = Saved("/c", shuffle_partitions=target.pinned) if target.pinned else saved
        query = Query("fraud", options.planned_mode, 300_000, plan=plan, refusals=refusals, slots=slots, saved=saved)
        query = replace(query, delivery=target.delivery)
        return replace(query, capacity=Capacity(own.slots), master=f"local[{own.slots}]")

    monkeypatch.setattr(preparation, "query_session", lambda spark, *_: spark)
    monkeypatch.setattr(preparation, "gather_facts", facts)
    monkeypatch.setattr(preparation, "require_groups", lambda *_: set())
    monkeypatch.setattr(preparation, "restarted", lambda _, slots: FakeSpark(slots.required))
    monkeypatch.setattr(preparation.engine, "stream_reads", lambda _: [])
    monkeypatch.setattr(preparation.engine, "capacity", lambda own: Capacity(own.slots))
    monkeypatch.setattr(preparation.engine, "resume", lambda _, location: replace(RESUMED, unused=location))


def prepared_for(target: Any, mode: Any = "realtime", *, dry_run: bool, **options: Any) -> Prepared:
    return prepare(target, RunOptions(mode, **options), dry_run=dry_run)


def test_a_start_locks_and_resumes_the_checkpoint_and_creates_topics_and_a_check_does_not(tmp_path: Path) -> None:
    checked, started = FakeTarget(tmp_path / "a"), FakeTarget(tmp_path / "b")
    with prepared_for(checked, dry_run=True) as prepared:
        assert prepared.report.ok
        assert prepared.resumed is None
        assert not (tmp_path / "a").exists()
    with prepared_for(started, dry_run=False) as prepared:
        assert prepared.report.ok
        assert prepared.resumed == replace(RESUMED, unused=str(tmp_path / "b"))
        with pytest.raises(CheckpointInUse):
            Checkpoint(tmp_path / "b").acquire(OWNER)
    Checkpoint(tmp_path / "b").acquire(OWNER)
    assert [step for step in started.steps if step != "create topics"] == checked.steps
    assert checked.steps == ["look up", "session", "look up by Spark", "build realtime"]


def test_a_start_raises_the_first_error_and_a_check_reports_all(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path, missing_topic=True, refused_in={Mode.REALTIME})
    with pytest.raises(TopicMissing):
        prepared_for(target, dry_run=False)
    assert target.steps == ["look up"]
    report = prepared_for(target, dry_run=True).report
    assert {finding.code for finding in report.findings} >= {"TOPIC_MISSING", "QUERY_REFUSED"}


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_error_after_the_lock_unlocks_the_checkpoint(
    tmp_path: Path, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java(*_: object) -> None:
        raise ToolchainError("no Java")

    target = FakeTarget(tmp_path)
    monkeypatch.setattr(target, "session", no_java)
    with pytest.raises(ToolchainError):
        prepared_for(target, dry_run=dry_run)
    Checkpoint(tmp_path).acquire(OWNER)


def test_spark_is_restarted_with_more_slots_and_a_check_says_that_it_will_do(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path, partitions=5)
    assert prepared_for(target, dry_run=True).report.ok
    assert target.steps.count("build realtime") == 1
    with prepared_for(target, dry_run=False) as prepared:
        assert prepared.report.ok
        assert prepared.query.capacity.slots == 5
    assert target.steps.count("build realtime") == 3


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_spark_of_the_users_is_not_restarted(tmp_path: Path, dry_run: bool) -> None:
    target = FakeTarget(tmp_path, partitions=5, restartable=False)
    with prepared_for(target, dry_run=dry_run) as prepared:
        assert prepared.report.errors == {"SLOTS_MISSING"}
        with pytest.raises(SlotsMissing):
            prepared.require_ok()


@pytest.mark.parametrize("dry_run", [True, False])
def test_auto_becomes_micro_batch_if_real_time_is_refused_and_says_why(tmp_path: Path, dry_run: bool) -> None:
    target = FakeTarget(tmp_path, refused_in={Mode.REALTIME})
    with prepared_for(target, "auto", dry_run=dry_run) as prepared:
        assert prepared.report.ok
        assert prepared.report.mode is Mode.MICROBATCH
        assert not prepared.options.realtime
        assert [finding.code for finding in prepared.report.why_microbatch] == ["QUERY_REFUSED"]
    with prepared_for(FakeTarget(tmp_path), "auto", dry_run=dry_run) as prepared:
        assert (prepared.report.mode, list(prepared.report.why_microbatch)) == (Mode.REALTIME, [])


@pytest.mark.parametrize("dry_run", [True, False])
def test_auto_that_neither_mode_accepts_is_refused(tmp_path: Path, dry_run: bool) -> None:
    target = FakeTarget(tmp_path, refused_in=set(Mode))
    with prepared_for(target, "auto", dry_run=dry_run) as prepared, pytest.raises(QueryRefused, match="query 'fraud'"):
        prepared.require_ok()


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("mode", "once", "bounded"), [("realtime", True, True), ("realtime", False, False), ("microbatch", True, False)]
)
def test_only_a_run_once_in_real_time_is_bounded_by_its_source(
    tmp_path: Path, dry_run: bool, mode: str, once: bool, bounded: bool
) -> None:
    target = FakeTarget(tmp_path)
    with prepared_for(target, mode, dry_run=dry_run, once=once):
        assert target.bounded == [bounded]


@pytest.mark.parametrize(("on_data_loss", "fails"), [(None, None), ("fail", True), ("warn", False)])
def test_the_option_for_lost_records_reaches_the_sources(tmp_path: Path, on_data_loss: Any, fails: bool | None) -> None:
    target = FakeTarget(tmp_path)
    with prepared_for(target, "realtime", dry_run=True, on_data_loss=on_data_loss):
        assert target.fail_on_data_loss == [fails]


def test_auto_that_becomes_micro_batch_is_no_longer_bounded_by_its_source(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path, refused_in={Mode.REALTIME})
    with prepared_for(target, "auto", dry_run=False, once=True):
        assert target.bounded == [True, False]


@pytest.mark.parametrize("dry_run", [True, False])
def test_tasks_limit_the_slots_and_reach_the_source(tmp_path: Path, dry_run: bool) -> None:
    target = FakeTarget(tmp_path, partitions=24, shuffles=1, restartable=False, spark=FakeSpark(8))
    with prepared_for(target, dry_run=dry_run, tasks=4) as prepared:
        assert prepared.report.ok
        assert prepared.query.slots == Slots((4, 4))
        assert target.tasks_built == [4]


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("partitions", "sources", "most", "stage"), [(24, 1, 8, 8), (24, 3, 2, 2), (24, 100, 1, 1), (3, 1, 8, 3)]
)
def test_auto_tasks_suit_the_cores_of_our_own_spark(
    tmp_path: Path, dry_run: bool, partitions: int, sources: int, most: int, stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation.os, "cpu_count", lambda: 2)
    target = FakeTarget(tmp_path, partitions=partitions, sources=sources, shuffles=1)
    with prepared_for(target, dry_run=dry_run, tasks="auto") as prepared:
        assert prepared.report.ok
        assert prepared.options.tasks == most
        assert prepared.query.slots == Slots((stage, stage))
        assert set(target.tasks_built) == {most}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("mode", ["realtime", "auto"])
def test_auto_tasks_are_one_for_each_partition_if_the_given_slots_suffice(
    tmp_path: Path, dry_run: bool, mode: str
) -> None:
    target = FakeTarget(tmp_path, partitions=4, shuffles=1, restartable=False, spark=FakeSpark(8))
    with prepared_for(target, mode, dry_run=dry_run, tasks="auto") as prepared:
        assert prepared.report.ok
        assert prepared.query.slots == Slots((4, 4))
        assert set(target.tasks_built) == {None}


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("mode", ["realtime", "auto"])
@pytest.mark.parametrize(
    ("shuffles", "pinned", "stages"), [(0, None, (8,)), (1, None, (4, 4)), (2, None, (2, 2, 2)), (1, 6, (2, 6))]
)
def test_auto_tasks_fill_the_given_slots(
    tmp_path: Path, dry_run: bool, mode: str, shuffles: int, pinned: int | None, stages: tuple[int, ...]
) -> None:
    target = FakeTarget(
        tmp_path, partitions=24, shuffles=shuffles, pinned=pinned, restartable=False, spark=FakeSpark(8)
    )
    with prepared_for(target, mode, dry_run=dry_run, tasks="auto") as prepared:
        assert prepared.report.ok
        assert prepared.report.mode is Mode.REALTIME, "missing slots are no reason for micro-batch"
        assert prepared.query.slots == Slots(stages)
        assert target.tasks_built[-1] == stages[0]


@pytest.mark.parametrize("dry_run", [True, False])
def test_auto_tasks_without_a_slot_for_one_are_an_error(tmp_path: Path, dry_run: bool) -> None:
    target = FakeTarget(tmp_path, partitions=24, shuffles=1, pinned=8, restartable=False, spark=FakeSpark(8))
    with prepared_for(target, dry_run=dry_run, tasks="auto") as prepared:
        assert prepared.report.errors == {"SLOTS_MISSING"}
        assert prepared.query.slots == Slots((1, 8))


@pytest.mark.parametrize("restartable", [True, False])
def test_micro_batches_do_not_share_tasks(tmp_path: Path, restartable: bool) -> None:
    target = FakeTarget(tmp_path, partitions=24, restartable=restartable, refused_in={Mode.REALTIME})
    with prepared_for(target, "auto", dry_run=False, tasks="auto") as prepared:
        assert prepared.report.ok
        assert prepared.report.mode is Mode.MICROBATCH
        assert target.tasks_built[-1] is None
    with prepared_for(FakeTarget(tmp_path), "microbatch", dry_run=True, tasks="auto") as prepared:
        assert prepared.report.ok


def test_the_checkpoint_stays_locked_once_the_query_has_its_lease(tmp_path: Path) -> None:
    with prepared_for(FakeTarget(tmp_path), dry_run=False) as prepared:
        lease = prepared.lease.pop_all()
    with pytest.raises(CheckpointInUse):
        Checkpoint(tmp_path).acquire(OWNER)
    lease.close()


def test_only_a_query_can_be_prepared() -> None:
    nothing: Any = 42
    with pytest.raises(DefinitionError, match="'int' is not a query"):
        target_of(nothing, RunOptions())


def test_a_start_says_why_the_delivery_is_weaker_than_a_user_expects(tmp_path: Path) -> None:
    weaker = DeliveryPlan(keeps_progress=True, effectively_once=False, reason="the topic is compacted", surprises=True)
    expected = DeliveryPlan(keeps_progress=False, effectively_once=False, reason="an aggregate")
    for number, (plan, lines) in enumerate(
        [(weaker, ["Delivery is at-least-once: the topic is compacted."]), (expected, []), (None, [])]
    ):
        said: list[str] = []
        target: Any = FakeTarget(tmp_path / str(number), delivery=plan)
        for dry_run in (True, False):
            with prepare(target, RunOptions(), dry_run=dry_run, announce=said.append) as prepared:
                assert prepared.delivery == (plan or DeliveryPlan(keeps_progress=False, effectively_once=False))
        assert said == lines
