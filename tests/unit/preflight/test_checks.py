"""Each check: its finding, and that the fix removes it."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest

from tailrace.pipeline import Mode
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.loss import Loss
from tailrace.plan.slots import Capacity, Slots
from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.preflight import checks
from tailrace.preflight.finding import Finding, Severity
from tailrace.preflight.latency import latency_chain
from tailrace.preflight.query import Saved

from .queries import node, query, refusal

RTM = "STREAMING_REAL_TIME_MODE."
SCAN = node("RealTimeStreamScan")


@dataclass(frozen=True)
class Case:
    """A query with a finding, and queries without it."""

    code: str
    severity: Severity
    bad: Mapping[str, Any]
    good: tuple[Mapping[str, Any], ...]
    texts: tuple[str, ...] = field(default_factory=tuple)


FOUR = {"tasks": tuple(f"payments-{n}" for n in (2, 0, 3, 1))}
MICRO = {"mode": Mode.MICROBATCH}
CARRIED: dict[str, Any] = {"functions": ("score", "rate"), "path": "pickled rows"}
AT_LEAST_ONCE = DeliveryPlan(
    keeps_progress=False, effectively_once=False, reason="an aggregate: so", fix="remove it", where="fraud.py:7 (agg)"
)
EFFECTIVELY_ONCE = DeliveryPlan(keeps_progress=True, effectively_once=True, fingerprint="f")
CASES = (
    Case(
        "DELIVERY_REFUSED", Severity.ERROR,
        {"wants_effectively_once": True, "delivery": AT_LEAST_ONCE},
        (
            {"wants_effectively_once": True, "delivery": EFFECTIVELY_ONCE},
            {"wants_effectively_once": True},
            {"delivery": AT_LEAST_ONCE},
        ),
        ("an aggregate: so", "remove it; or --delivery at-least-once", "fraud.py:7 (agg)"),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {**FOUR, "slots": Slots((4,))},
        ({**FOUR, "slots": Slots((4,)), "capacity": Capacity(4)}, {**FOUR, "slots": Slots((4,)), **MICRO}),
        (
            "4 task slots and Spark has 2", "never reads payments-3, payments-1",
            "--tasks 2 or --master 'local[4]'", "--mode microbatch",
        ),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {"slots": Slots((8, 20, 20)), "capacity": Capacity(24)},
        (
            {"slots": Slots((8, 8, 8)), "capacity": Capacity(24)},
            {"slots": Slots((8, 20, 20)), "capacity": Capacity(48)},
        ),
        ("48 task slots and Spark has 24", "8 + 20 + 20 = 48", "--shuffle-partitions 8", "local[48]"),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {"capacity": Capacity(4, taken=3)},
        ({"capacity": Capacity(5, taken=3)},),
        ("3 of them taken by other queries", "local[5]"),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {"capacity": Capacity(0), "master": "spark://127.0.0.1:7077"},
        ({"capacity": Capacity(2), "master": "spark://127.0.0.1:7077"},),
        ("Spark has 0", "no executor has registered", "free 2 cores on the cluster"),
    ),
    Case(
        "EXECUTORS_MISSING", Severity.WARNING,
        {"capacity": Capacity(2, executors_missing=3)}, ({},),
        ("3 executors", "minRegisteredResourcesRatio"),
    ),
    Case(
        "SHUFFLE_PARTITIONS_MANY", Severity.WARNING,
        {"slots": Slots((2, 200)), "capacity": Capacity(300)},
        ({"slots": Slots((2, 2)), "capacity": Capacity(300)},),
        ("200 tasks", "--shuffle-partitions 2"),
    ),
    Case(
        "SETTING_REFUSED", Severity.ERROR,
        {"settings": {"spark.sql.execution.sortBeforeRepartition": "true"}}, ({"settings": {}}, MICRO),
        ("sortBeforeRepartition=true cannot work in real time",),
    ),
    Case(
        "SETTING_REFUSED", Severity.ERROR,
        {"settings": {"spark.speculation": "true", "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1"},
         "slots": Slots((1, 1))},
        ({"settings": {"spark.speculation": "true"}},),
        ("spark.speculation=true",),
    ),
    Case(
        "BATCH_END_UNSUPPORTED", Severity.WARNING,
        {"uncontrolled": "Spark 4.4.0 is not one of 4.3.x"}, ({},),
        ("a stop repeats the records since", "Spark 4.4.0 is not one of 4.3.x", "tailrace doctor"),
    ),
    Case(
        "BATCH_END_UNSUPPORTED", Severity.WARNING,
        {"uncontrolled": "Spark 4.4.0 is not one of 4.3.x", **MICRO},
        (MICRO, {"uncontrolled": "it reads no Kafka topic", "reads": (), **MICRO}),
        ("a stop repeats the running batch", "Spark 4.4.0 is not one of 4.3.x", "tailrace doctor"),
    ),
    Case(
        "BATCH_END_UNSUPPORTED", Severity.WARNING,
        {"uncontrolled": "spark.sql.streaming.disabledV2MicroBatchReaders makes Spark read Kafka", **MICRO}, (MICRO,),
        ("a stop repeats the running batch", "unset spark.sql.streaming.disabledV2MicroBatchReaders"),
    ),
    Case(
        "BATCH_END_UNSUPPORTED", Severity.WARNING,
        {"uncontrolled": "it also reads memory", "reads": (StreamRead("kafka", {}), StreamRead("memory", {}))}, ({},),
        ("a stop repeats the records since", "it also reads memory", "read only Kafka topics"),
    ),
    Case(
        "BATCH_END_UNSUPPORTED", Severity.ERROR,
        {"uncontrolled": "Spark 4.4.0 is not one of 4.3.x", "bounded": True},
        ({"bounded": True},),
        ("once cannot end", "Spark 4.4.0 is not one of 4.3.x", "tailrace doctor", "--mode microbatch"),
    ),
    Case(
        "QUERY_REFUSED", Severity.ERROR,
        {"refusals": (refusal("_LEGACY_ERROR_TEMP_3102", "Sorting is not supported on streams;\nmore"),)}, ({},),
        ("Sorting is not supported on streams", "fraud.py:7 (select)"),
    ),
    Case(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("StreamingSymmetricHashJoin", SCAN, refused=True, call="join", line="fraud.py:9")},
        ({"plan": node("BroadcastHashJoin", SCAN)},),
        ("a join of two streams cannot run in real time", "fraud.py:9 (join)", "union"),
    ),
    Case(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("NeverHeardOf", SCAN, refused=True)}, ({"plan": SCAN},),
        ("the operation NeverHeardOf",),
    ),
    Case(
        "PYTHON_FUNCTION", Severity.ERROR,
        {"plan": node("ArrowEvalPython", SCAN, refused=True, functions=("score",))}, ({"plan": SCAN}, MICRO),
        ("Python function score cannot run in real time", "Arrow batches"),
    ),
    Case(
        "PYTHON_FUNCTION", Severity.ADVICE,
        {"plan": node("SerializeFromObject", node("MapPartitions", SCAN, **CARRIED, line="fraud.py:9", call="select"))},
        ({"plan": node("SerializeFromObject", node("MapPartitions", SCAN))}, MICRO),
        ("Python runs score, rate on the rows that have arrived", "pickled rows", "costs less", "fraud.py:9 (select)"),
    ),
    Case(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("MapInPandas", SCAN, refused=True, functions=("score",), call="mapInPandas", line="fraud.py:9")},
        ({"plan": node("MapPartitions", SCAN, functions=("score",), path="Arrow batches")},),
        ("mapInPandas with a barrier", "without barrier=", "fraud.py:9 (mapInPandas)"),
    ),
    Case(
        "SOURCE_TWICE", Severity.ERROR,
        {"refusals": (refusal(RTM + "IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED", sources="kafka"),)}, ({},),
        ("a union of a source with itself",),
    ),
    Case(
        "STATE_BELOW_UNION", Severity.ERROR,
        {"refusals": (refusal(RTM + "STATEFUL_OPERATORS_BEFORE_UNION_NOT_SUPPORTED"),)}, ({},),
        ("below a union",),
    ),
    Case(
        "SOURCE_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "INPUT_STREAM_NOT_SUPPORTED", className="a.b.RateStream"),)}, ({},),
        ("the source RateStream",),
    ),
    Case(
        "SOURCE_OPTION_REFUSED", Severity.ERROR,
        {"refusals": (refusal("", "maxOffsetsPerTrigger is not compatible with real time mode"),),
         "reads": (StreamRead("kafka", {"maxOffsetsPerTrigger": "10"}),)},
        ({},),
        ("option maxOffsetsPerTrigger",),
    ),
    Case(
        "SOURCE_OPTION_IGNORED", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"kafkaConsumer.pollTimeoutMs": "10"}),)}, ({}, MICRO),
        ("kafkaConsumer.pollTimeoutMs has no effect",),
    ),
    Case(
        "SOURCE_OPTION_IGNORED", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"failOnDataLoss": "false"}),), "uncontrolled": "Spark 4.4.0 is not known"},
        (
            {"reads": (StreamRead("kafka", {"failOnDataLoss": "false"}),)},
            {"reads": (StreamRead("kafka", {"failOnDataLoss": "true"}),), "uncontrolled": "Spark 4.4.0"},
        ),
        ("failOnDataLoss=false", "Spark 4.4.0 is not known: Spark's own source"),
    ),
    Case(
        "SLOTS_UNKNOWN", Severity.WARNING, {"slots": None}, ({}, {"slots": None, **MICRO}), ("could not be counted",),
    ),
    Case(
        "RIGHTS_UNKNOWN", Severity.ADVICE, {"rights_unknown": ("payments", "decisions")}, ({},),
        ("payments, decisions", "READ", "WRITE"),
    ),
    Case(
        "BROKER_UNREACHABLE", Severity.ERROR,
        {"refusals": (refusal("TAILRACE_BROKER_SILENT", "Timed out waiting for a node"),)}, ({},),
        ("Timed out", "advertised.listeners"),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {"slots": Slots((4, 20, 20), fixed=20, fixed_shuffles=1), "capacity": Capacity(30)},
        ({"slots": Slots((4, 20, 6), fixed=20, fixed_shuffles=1), "capacity": Capacity(30)},),
        ("--shuffle-partitions 6",),
    ),
    Case(
        "SLOTS_MISSING", Severity.ERROR,
        {**FOUR, "slots": Slots((4,)), "settings": {"spark.task.cpus": "2"}},
        ({**FOUR, "slots": Slots((4,)), "capacity": Capacity(4)},),
        ("local[8]",),
    ),
    Case(
        "DATA_LOST", Severity.ERROR,
        {"losses": (Loss("recreated", "payments", "9 in partition 0", accepted=False),)}, ({},),
        ("deleted and created again", "9 in partition 0", "continue at the beginning", "--on-data-loss"),
    ),
    Case(
        "DATA_LOST", Severity.WARNING,
        {"losses": (Loss("deleted", "payments-0", "10 to 19", accepted=True),)}, ({},),
        ("payments-0 has deleted records", "10 to 19", "nothing to do", "with the first record that is left"),
    ),
    Case(
        "DATA_LOST", Severity.ERROR,
        {"losses": (Loss("shorter", "payments-0", "10 and 4", accepted=False),)}, (MICRO,),
        ("payments-0 ends before the query's position", "10 and 4", "without the records before it"),
    ),
    Case(
        "CHECKPOINT_OUTGROWN", Severity.ERROR,
        {"saved": Saved("/c", 2, offsets=("{}", "{}"))}, ({"saved": Saved("/c", 2, offsets=("{}",))},),
        ("the checkpoint has 2 sources and the query has 1 source",),
    ),
    Case(
        "REALTIME_NOT_NEEDED", Severity.ADVICE,
        {"sink": WriterSettings("kafka", "update", {"topic": "out", "kafka.linger.ms": "1000"})},
        ({"sink": WriterSettings("kafka", "update", {"topic": "out"})}, MICRO),
        ("1000 ms",),
    ),
    Case(
        "PYTHON_FUNCTION", Severity.ADVICE,
        {
            "plan": node("BatchEvalPython", SCAN, functions=("score",)),
            "settings": {
                "spark.python.udf.pipelined.enabled": "true",
                "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
                "spark.sql.execution.python.udf.buffer.size": "4",
            },
        },
        ({},),
        ("score gets each row in its own message",),
    ),
    Case(
        "SOURCE_SLOW", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"kafka.fetch.min.bytes": "65536"}),)},
        ({"reads": (StreamRead("kafka", {"kafka.fetch.min.bytes": "1"}),)}, MICRO),
        ("500 ms", "unset kafka.fetch.min.bytes"),
    ),
    Case(
        "PYTHON_FUNCTION", Severity.WARNING,
        {"plan": node("ArrowEvalPython", SCAN, functions=("score",), line="fraud.py:9", call="select")},
        ({}, MICRO),
        ("rows wait for score up to 300 s", "fraud.py:9"),
    ),
    Case(
        "SINK_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "SINK_NOT_SUPPORTED", className="foreachBatch"),),
         "sink": WriterSettings("foreachBatch", "update", {})},
        ({},),
        ("the sink 'foreachBatch'",),
    ),
    Case(
        "OUTPUT_MODE_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "OUTPUT_MODE_NOT_SUPPORTED", outputMode="Complete"),)}, ({},),
        ("the output mode Complete", '.outputMode("update")'),
    ),
    Case(
        "SINK_SLOW", Severity.WARNING,
        {"sink": WriterSettings("kafka", "update", {"kafka.linger.ms": "50"})},
        ({"sink": WriterSettings("kafka", "update", {"kafka.linger.ms": "0"})}, {}),
        ("waits 50 ms",),
    ),
    Case(
        "SINK_SLOW", Severity.WARNING,
        {"sink_topic_settings": {"flush.messages": "1"}}, ({"sink_topic_settings": {"flush.messages": "100000"}},),
        ("waits for the disk",),
    ),
    Case(
        "PYTHON_FOREACH", Severity.WARNING,
        {"sink": WriterSettings("foreach", "update", {})}, ({}, MICRO),
        ("foreach",),
    ),
    Case(
        "CHECKPOINT_FOREIGN", Severity.ERROR,
        {"saved": Saved("/c", belongs_to="query 'other'")}, ({"saved": Saved("/c")},),
        ("/c belongs to query 'other'",),
    ),
    Case(
        "CHECKPOINT_FORMAT_OLD", Severity.ERROR,
        {"saved": Saved("/c", format=1)}, ({"saved": Saved("/c", format=2)}, {"saved": Saved("/c", format=1), **MICRO}),
        ("format 1",),
    ),
    Case(
        "CHECKPOINT_PARTITIONS", Severity.ERROR,
        {"saved": Saved("/c", shuffle_partitions=4), "settings": {"spark.sql.shuffle.partitions": "8"}},
        ({"saved": Saved("/c", shuffle_partitions=4), "settings": {"spark.sql.shuffle.partitions": "4"}}, {}),
        ("--shuffle-partitions 4",),
    ),
    Case(
        "STATE_UNBOUNDED", Severity.WARNING,
        {"plan": node("StreamingDeduplicate", SCAN, bounded=False, line="fraud.py:3", call="dropDuplicates")},
        ({"plan": node("StreamingDeduplicate", SCAN)}, {}),
        ("dropDuplicates grows", "withWatermark"),
    ),
    Case(
        "WATERMARK_LATE", Severity.ADVICE,
        {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0, 600.0), "interval_ms": 60_000},
        (
            {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0, 600.0), "interval_ms": 15_000},
            {"plan": node("EventTimeWatermark", SCAN), "interval_ms": 60_000},
            {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0,), **MICRO},
        ),
        ("up to 120 s after", "every 60 s", "--checkpoint-every 15s"),
    ),
    Case(
        "STATIC_SIDE_REBUILT", Severity.ADVICE,
        {"plan": node("BroadcastHashJoin", SCAN, node("BroadcastExchange")), "interval_ms": 5_000},
        ({"plan": node("BroadcastHashJoin", SCAN, node("BroadcastExchange")), "interval_ms": 60_000},),
        ("every 5 s", "--checkpoint-every 60s"),
    ),
    Case(
        "SHUFFLE_TIMER", Severity.WARNING,
        {"slots": Slots((1, 1)), "settings": {}},
        ({"slots": Slots((1, 1))}, {"settings": {}}),
        ("50 ms", "tr.session()"),
    ),
    Case(
        "SHUFFLE_UNAUTHENTICATED", Severity.WARNING,
        {"slots": Slots((1, 1)), "settings": {"spark.authenticate": "true",
                                              "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1"}},
        ({"settings": {"spark.authenticate": "true"}},),
        ("spark.authenticate does not cover",),
    ),
    Case(
        "RECOVERY_LONG", Severity.ADVICE,
        {"interval_ms": 3_600_000, "delivery": AT_LEAST_ONCE},
        (
            {"interval_ms": 300_000},
            {"interval_ms": 3_600_000, **MICRO},
            {"interval_ms": 3_600_000, "delivery": EFFECTIVELY_ONCE},
            {"interval_ms": 3_600_000, "delivery": replace(EFFECTIVELY_ONCE, effectively_once=False)},
        ),
        ("60 minutes",),
    ),
    Case(
        "REALTIME_NOT_NEEDED", Severity.ADVICE,
        {"windows_s": (3600.0,)}, ({"windows_s": (60.0,)}, {"windows_s": (3600.0,), **MICRO}),
        ("60 minutes", "2 slots"),
    ),
)  # fmt: skip


def findings(**changed: Any) -> list[Finding]:
    given = query(**changed)
    return [finding for each in checks.ALL for finding in each.check(given)]


def test_a_good_query_has_no_findings() -> None:
    assert findings() == []
    assert findings(mode=Mode.MICROBATCH) == []


@pytest.mark.parametrize("path", ["", "Arrow batches"])
def test_a_static_table_may_use_python_functions(path: str) -> None:
    table = node("BroadcastExchange", node("ArrowEvalPython", node("LocalTableScan"), functions=("score",), path=path))
    assert findings(plan=node("BroadcastHashJoin", SCAN, table)) == []


@pytest.mark.parametrize(
    ("name", "path", "held"),
    [("MapPartitions", "Arrow batches", False), ("MapPartitions", "", False), ("ArrowEvalPython", "", True)],
)
def test_only_sparks_own_operators_hold_rows_for_python(name: str, path: str, held: bool) -> None:
    links = latency_chain(query(plan=node(name, SCAN, functions=("score",), path=path)))
    assert ("Python" in {link.name for link in links}) is held


def test_a_crash_repeats_what_the_delivery_allows() -> None:
    def repeated(delivery: DeliveryPlan | None) -> dict[str, float]:
        links = latency_chain(query(delivery=delivery, progress_ms=1000))
        return {link.source: link.ms for link in links if link.name == "repeated records"}

    assert repeated(None) == repeated(AT_LEAST_ONCE) == {"--checkpoint-every": 300_000}
    assert repeated(replace(EFFECTIVELY_ONCE, effectively_once=False)) == {"--progress-every": 1000}
    assert repeated(EFFECTIVELY_ONCE) == {}


def test_each_node_with_python_functions_is_a_link() -> None:
    lower = node("MapPartitions", SCAN, functions=("rate",), path="plain columns")
    upper = node("MapPartitions", lower, functions=("score", "rank"), path="pickled rows")
    links = {link.name: link for link in latency_chain(query(plan=upper))}
    assert links["rate"].ms > links["score, rank"].ms > 0
    assert "plain columns" in links["rate"].source
    assert "rate" not in {link.name for link in latency_chain(query(plan=upper, **MICRO))}


def test_each_python_function_is_reported_with_its_own_path() -> None:
    lower = node("MapPartitions", SCAN, functions=("rate",), path="Arrow batches")
    both = findings(plan=node("MapPartitions", lower, functions=("score",), path="pickled rows"))
    assert [finding.severity for finding in both] == [Severity.ADVICE, Severity.ADVICE]
    assert ["pickled rows" in finding.why for finding in both] == [True, False]


def test_a_function_that_spark_calls_in_two_places_is_reported_once() -> None:
    lower = node("MapPartitions", SCAN, functions=("score",), path="Arrow batches")
    assert len(findings(plan=node("MapPartitions", lower, functions=("score",), path="Arrow batches"))) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code} {case.texts[0]}")
def test_a_check_has_a_finding_and_its_fix_removes_it(case: Case) -> None:
    (finding,) = [finding for finding in findings(**case.bad) if finding.code == case.code]
    assert finding.severity is case.severity
    printed = " ".join((finding.title, finding.why, finding.fix, finding.where))
    for text in case.texts:
        assert text in printed
    for better in case.good:
        assert case.code not in {finding.code for finding in findings(**better)}, better


@pytest.mark.parametrize(
    ("changed", "tasks"),
    [
        ({"slots": Slots((24,)), "capacity": Capacity(8)}, 8),
        ({"slots": Slots((24,)), "capacity": Capacity(8, taken=5)}, 3),
        ({"slots": Slots((24, 24)), "capacity": Capacity(8)}, 4),
        ({"slots": Slots((24, 6)), "capacity": Capacity(8), "saved": Saved("/c", shuffle_partitions=6)}, 2),
        ({"slots": Slots((24, 6)), "capacity": Capacity(8)}, 2),  # the user sets the number after the shuffle
        ({"slots": Slots((24, 24)), "capacity": Capacity(8), "saved": Saved("/c", shuffle_partitions=24)}, None),
        ({"slots": Slots((8, 20)), "capacity": Capacity(20)}, None),
        ({"slots": Slots((24, 24)), "capacity": Capacity(1)}, None),
        ({"slots": Slots((24,)), "capacity": Capacity(8), "uncontrolled": "Spark 4.4.0"}, None),
    ],
)
def test_shared_tasks_are_the_first_fix_for_missing_slots(changed: dict[str, Any], tasks: int | None) -> None:
    (missing,) = [each for each in findings(**changed) if each.code == "SLOTS_MISSING"]
    if tasks is None:
        assert "--tasks" not in missing.fix
    else:
        assert missing.fix.startswith(f"--tasks {tasks} or ")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, ""),
        ({"saved": Saved("/c")}, ""),
        ({"saved": Saved("/c", format=2, shuffle_partitions=6)}, "/c, format 2: both modes can continue it"),
        (
            {"saved": Saved("/c", format=2, shuffle_partitions=6), "slots": Slots((2, 6))},
            "/c, format 2: both modes can continue it; it keeps its 6 shuffle partitions",
        ),
    ],
)
def test_a_checkpoint_says_what_it_keeps(changed: dict[str, Any], sentence: str) -> None:
    assert query(**changed).progress == sentence


def test_a_query_with_unknown_slots_has_no_fitting_tasks() -> None:
    assert query(slots=None).fitting_tasks == 0


def test_microbatch_is_no_fix_for_a_query_that_it_refuses_too() -> None:
    accepted = [finding for case in CASES for finding in findings(**case.bad)]
    assert len([finding for finding in accepted if "microbatch" in finding.fix]) >= 10
    refused = [finding for case in CASES for finding in findings(**case.bad, runs_in_microbatch=False)]
    assert [finding for finding in refused if "microbatch" in finding.fix] == []
    assert all(finding.fix for finding in refused)


def test_what_spark_adds_for_a_refused_operator_is_not_reported() -> None:
    sort = node("Sort", node("Exchange", SCAN, refused=True, implied=True), refused=True, implied=True)
    sessions = node("HashAggregate", node("MergingSessions", sort, refused=True), refused=True)
    assert [finding.title for finding in findings(plan=sessions)] == ["a session window cannot run in real time"]
    over = node("Window", sort, refused=True)
    assert [finding.title for finding in findings(plan=over)] == ["a window function (over) cannot run in real time"]
    alone = findings(plan=sort)
    assert alone, "nothing that Spark refuses may pass"


SORTED = refusal("_LEGACY_ERROR_TEMP_3102", "Sorting is not supported on streaming DataFrames/Datasets;")
TWICE = refusal("_LEGACY_ERROR_TEMP_3102", "Detected pattern of possible 'correctness' issue due to global watermark;")


def test_an_operator_and_the_rule_against_it_are_one_finding() -> None:
    both = findings(refusals=(replace(SORTED, line=""),), plan=node("Sort", SCAN, refused=True))
    assert [finding.code for finding in both] == ["OPERATOR_REFUSED"]


def test_a_pivot_is_reported_by_its_name() -> None:
    (pivot,) = findings(refusals=(TWICE,), pivots=True)
    assert pivot.title == "pivot cannot run on a stream"
    assert "F.sum(F.when(" in pivot.fix
    (other,) = findings(refusals=(TWICE,))
    assert "pivot" not in other.title + other.fix


def test_a_join_of_two_streams_may_have_unbounded_state() -> None:
    join = {"bounded": False, "line": "fraud.py:3", "call": "join"}
    (finding,) = findings(plan=node("StreamingSymmetricHashJoin", SCAN, **join), **MICRO)
    assert finding.code == "STATE_UNBOUNDED"
    assert "join of two streams" in finding.title
    refused = findings(plan=node("StreamingSymmetricHashJoin", SCAN, **join, refused=True))
    assert [finding.code for finding in refused] == ["OPERATOR_REFUSED"]


def modules() -> dict[str, ModuleType]:
    return {each.CODE: each for each in checks.ALL}  # type: ignore[misc]


def test_every_check_has_its_own_code_and_a_case_here() -> None:
    codes = [each.CODE for each in checks.ALL]
    assert len(set(codes)) == len(codes)
    assert {case.code for case in CASES} == set(codes)


@pytest.mark.parametrize("code", modules())
def test_every_check_describes_the_problem_and_what_to_do_instead(code: str) -> None:
    summary, _, rest = (inspect.getdoc(modules()[code]) or "").partition("\n\nProblem:\n")
    problem, _, instead = rest.partition("\n\nDo this instead:\n")
    assert re.fullmatch(r"[^\n]+\.", summary), "one sentence"
    assert problem.strip()
    assert instead.strip()


@pytest.mark.parametrize(
    ("exception", "code"),
    [
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", "AUTHENTICATION_FAILED"),
        ("org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed", "TLS_FAILED"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", "NOT_AUTHORIZED"),
    ],
)
def test_a_refusal_by_the_broker_has_its_own_code(exception: str, code: str) -> None:
    reported = checks.broker_unreachable.check(query(refusals=(refusal("TAILRACE_BROKER_SILENT", exception),)))
    assert [(each.code, each.why) for each in reported] == [(code, exception.partition(": ")[2])]
