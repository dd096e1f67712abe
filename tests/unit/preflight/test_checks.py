"""Each check: what it finds, and that its way out makes the finding go away."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest

from tailrace.pipeline import Mode
from tailrace.plan.slots import Capacity, Slots
from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.preflight import checks
from tailrace.preflight.finding import Finding, Severity
from tailrace.preflight.latency import latency_chain
from tailrace.preflight.query import Saved

from .made_up import node, query, refusal

RTM = "STREAMING_REAL_TIME_MODE."
SCAN = node("RealTimeStreamScan")


@dataclass(frozen=True)
class Found:
    """What makes a check speak, and what silences it."""

    code: str
    severity: Severity
    bad: Mapping[str, Any]
    good: tuple[Mapping[str, Any], ...]
    says: tuple[str, ...] = field(default_factory=tuple)


FOUR = {"tasks": tuple(f"payments-{n}" for n in (2, 0, 3, 1))}
MICRO = {"mode": Mode.MICROBATCH}
CARRIED: dict[str, Any] = {"functions": ("score", "rate"), "path": "pickled rows"}
FOUND = (
    Found(
        "SLOTS_MISSING", Severity.ERROR,
        {**FOUR, "slots": Slots((4,))},
        ({**FOUR, "slots": Slots((4,)), "capacity": Capacity(4)}, {**FOUR, "slots": Slots((4,)), **MICRO}),
        ("4 task slots and Spark has 2", "never read payments-3, payments-1", "local[4]", "--mode microbatch"),
    ),
    Found(
        "SLOTS_MISSING", Severity.ERROR,
        {"slots": Slots((8, 20, 20)), "capacity": Capacity(24)},
        (
            {"slots": Slots((8, 8, 8)), "capacity": Capacity(24)},
            {"slots": Slots((8, 20, 20)), "capacity": Capacity(48)},
        ),
        ("48 task slots and Spark has 24", "8 + 20 + 20 = 48", "--shuffle-partitions 8", "local[48]"),
    ),
    Found(
        "SLOTS_MISSING", Severity.ERROR,
        {"capacity": Capacity(4, taken=3)},
        ({"capacity": Capacity(5, taken=3)},),
        ("3 of them taken by other queries", "local[5]"),
    ),
    Found(
        "EXECUTORS_MISSING", Severity.WARNING,
        {"capacity": Capacity(2, executors_missing=3)}, ({},),
        ("3 executors", "minRegisteredResourcesRatio"),
    ),
    Found(
        "SHUFFLE_PARTITIONS_MANY", Severity.WARNING,
        {"slots": Slots((2, 200)), "capacity": Capacity(300)},
        ({"slots": Slots((2, 2)), "capacity": Capacity(300)},),
        ("200 tasks", "--shuffle-partitions 2"),
    ),
    Found(
        "SETTING_REFUSED", Severity.ERROR,
        {"settings": {"spark.sql.execution.sortBeforeRepartition": "true"}}, ({"settings": {}}, MICRO),
        ("sortBeforeRepartition=true",),
    ),
    Found(
        "SETTING_REFUSED", Severity.ERROR,
        {"settings": {"spark.speculation": "true", "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1"},
         "slots": Slots((1, 1))},
        ({"settings": {"spark.speculation": "true"}},),
        ("spark.speculation=true",),
    ),
    Found(
        "QUERY_REFUSED", Severity.ERROR,
        {"refusals": (refusal("_LEGACY_ERROR_TEMP_3102", "Sorting is not supported on streams;\nmore"),)}, ({},),
        ("Sorting is not supported on streams", "fraud.py:7 (select)"),
    ),
    Found(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("StreamingSymmetricHashJoin", SCAN, refused=True, call="join", line="fraud.py:9")},
        ({"plan": node("BroadcastHashJoin", SCAN)},),
        ("a join of two streams cannot run in real time", "fraud.py:9 (join)", "union"),
    ),
    Found(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("NeverHeardOf", SCAN, refused=True)}, ({"plan": SCAN},),
        ("the operation NeverHeardOf",),
    ),
    Found(
        "PYTHON_FUNCTION", Severity.ERROR,
        {"plan": node("ArrowEvalPython", SCAN, refused=True, functions=("score",))}, ({"plan": SCAN}, MICRO),
        ("score is Python", "Arrow batches"),
    ),
    Found(
        "PYTHON_FUNCTION", Severity.ADVICE,
        {"plan": node("SerializeFromObject", node("MapPartitions", SCAN, **CARRIED, line="fraud.py:9", call="select"))},
        ({"plan": node("SerializeFromObject", node("MapPartitions", SCAN))}, MICRO),
        ("Python runs score, rate on the rows that have arrived", "pickled rows", "is cheaper", "fraud.py:9 (select)"),
    ),
    Found(
        "OPERATOR_REFUSED", Severity.ERROR,
        {"plan": node("MapInPandas", SCAN, refused=True, functions=("score",), call="mapInPandas", line="fraud.py:9")},
        ({"plan": node("MapPartitions", SCAN, functions=("score",), path="Arrow batches")},),
        ("mapInPandas with a barrier", "without barrier=", "fraud.py:9 (mapInPandas)"),
    ),
    Found(
        "SOURCE_TWICE", Severity.ERROR,
        {"refusals": (refusal(RTM + "IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED", sources="kafka"),)}, ({},),
        ("a union of one source with itself",),
    ),
    Found(
        "STATE_BELOW_UNION", Severity.ERROR,
        {"refusals": (refusal(RTM + "STATEFUL_OPERATORS_BEFORE_UNION_NOT_SUPPORTED"),)}, ({},),
        ("below a union",),
    ),
    Found(
        "SOURCE_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "INPUT_STREAM_NOT_SUPPORTED", className="a.b.RateStream"),)}, ({},),
        ("the source RateStream",),
    ),
    Found(
        "SOURCE_OPTION_REFUSED", Severity.ERROR,
        {"refusals": (refusal("", "maxOffsetsPerTrigger is not compatible with real time mode"),),
         "reads": (StreamRead("kafka", {"maxOffsetsPerTrigger": "10"}),)},
        ({},),
        ("option maxOffsetsPerTrigger",),
    ),
    Found(
        "SOURCE_OPTION_IGNORED", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"kafkaConsumer.pollTimeoutMs": "10"}),)}, ({}, MICRO),
        ("kafkaConsumer.pollTimeoutMs does nothing",),
    ),
    Found(
        "SOURCE_OPTION_IGNORED", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"failOnDataLoss": "false"}),)},
        ({"reads": (StreamRead("kafka", {"failOnDataLoss": "true"}),)},),
        ("failOnDataLoss=false",),
    ),
    Found(
        "SLOTS_UNKNOWN", Severity.WARNING, {"slots": None}, ({}, {"slots": None, **MICRO}), ("could not be counted",),
    ),
    Found(
        "RIGHTS_UNKNOWN", Severity.ADVICE, {"rights_unknown": ("payments", "decisions")}, ({},),
        ("payments, decisions", "READ", "WRITE"),
    ),
    Found(
        "BROKER_UNREACHABLE", Severity.ERROR,
        {"refusals": (refusal("TAILRACE_BROKER_SILENT", "Timed out waiting for a node"),)}, ({},),
        ("Timed out", "advertised.listeners"),
    ),
    Found(
        "SLOTS_MISSING", Severity.ERROR,
        {"slots": Slots((4, 20, 20), fixed=20, fixed_shuffles=1), "capacity": Capacity(30)},
        ({"slots": Slots((4, 20, 6), fixed=20, fixed_shuffles=1), "capacity": Capacity(30)},),
        ("--shuffle-partitions 6",),
    ),
    Found(
        "SLOTS_MISSING", Severity.ERROR,
        {**FOUR, "slots": Slots((4,)), "settings": {"spark.task.cpus": "2"}},
        ({**FOUR, "slots": Slots((4,)), "capacity": Capacity(4)},),
        ("local[8]",),
    ),
    Found(
        "CHECKPOINT_OUTGROWN", Severity.ERROR,
        {"saved": Saved("/c", 2, offsets=("{}", "{}"))}, ({"saved": Saved("/c", 2, offsets=("{}",))},),
        ("another number of sources than its checkpoint: 1, not 2",),
    ),
    Found(
        "REALTIME_NOT_NEEDED", Severity.ADVICE,
        {"sink": WriterSettings("kafka", "update", {"topic": "out", "kafka.linger.ms": "1000"})},
        ({"sink": WriterSettings("kafka", "update", {"topic": "out"})}, MICRO),
        ("1000 ms",),
    ),
    Found(
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
        ("score gets each row in a message of its own",),
    ),
    Found(
        "SOURCE_SLOW", Severity.WARNING,
        {"reads": (StreamRead("kafka", {"kafka.fetch.min.bytes": "65536"}),)},
        ({"reads": (StreamRead("kafka", {"kafka.fetch.min.bytes": "1"}),)}, MICRO),
        ("500 ms", "unset kafka.fetch.min.bytes"),
    ),
    Found(
        "PYTHON_FUNCTION", Severity.WARNING,
        {"plan": node("ArrowEvalPython", SCAN, functions=("score",), line="fraud.py:9", call="select")},
        ({}, MICRO),
        ("rows wait for score up to 300 s", "fraud.py:9"),
    ),
    Found(
        "SINK_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "SINK_NOT_SUPPORTED", className="foreachBatch"),),
         "sink": WriterSettings("foreachBatch", "update", {})},
        ({},),
        ("the sink 'foreachBatch'",),
    ),
    Found(
        "OUTPUT_MODE_REFUSED", Severity.ERROR,
        {"refusals": (refusal(RTM + "OUTPUT_MODE_NOT_SUPPORTED", outputMode="Complete"),)}, ({},),
        ("only update mode, not complete",),
    ),
    Found(
        "SINK_SLOW", Severity.WARNING,
        {"sink": WriterSettings("kafka", "update", {"kafka.linger.ms": "50"})},
        ({"sink": WriterSettings("kafka", "update", {"kafka.linger.ms": "0"})}, {}),
        ("waits 50 ms",),
    ),
    Found(
        "SINK_SLOW", Severity.WARNING,
        {"sink_topic_settings": {"flush.messages": "1"}}, ({"sink_topic_settings": {"flush.messages": "100000"}},),
        ("waits for the disk",),
    ),
    Found(
        "PYTHON_FOREACH", Severity.WARNING,
        {"sink": WriterSettings("foreach", "update", {})}, ({}, MICRO),
        ("foreach",),
    ),
    Found(
        "CHECKPOINT_FOREIGN", Severity.ERROR,
        {"saved": Saved("/c", belongs_to="query 'other'")}, ({"saved": Saved("/c")},),
        ("/c belongs to query 'other'",),
    ),
    Found(
        "CHECKPOINT_FORMAT_OLD", Severity.ERROR,
        {"saved": Saved("/c", format=1)}, ({"saved": Saved("/c", format=2)}, {"saved": Saved("/c", format=1), **MICRO}),
        ("format 1",),
    ),
    Found(
        "CHECKPOINT_PARTITIONS", Severity.ERROR,
        {"saved": Saved("/c", shuffle_partitions=4), "settings": {"spark.sql.shuffle.partitions": "8"}},
        ({"saved": Saved("/c", shuffle_partitions=4), "settings": {"spark.sql.shuffle.partitions": "4"}}, {}),
        ("--shuffle-partitions 4",),
    ),
    Found(
        "STATE_UNBOUNDED", Severity.WARNING,
        {"plan": node("StreamingDeduplicate", SCAN, bounded=False, line="fraud.py:3", call="dropDuplicates")},
        ({"plan": node("StreamingDeduplicate", SCAN)}, {}),
        ("dropDuplicates grows", "withWatermark"),
    ),
    Found(
        "WATERMARK_LATE", Severity.ADVICE,
        {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0, 600.0), "interval_ms": 60_000},
        (
            {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0, 600.0), "interval_ms": 15_000},
            {"plan": node("EventTimeWatermark", SCAN), "interval_ms": 60_000},
            {"plan": node("EventTimeWatermark", SCAN), "windows_s": (300.0,), **MICRO},
        ),
        ("up to 120 s after", "every 60 s", "--checkpoint-every 15s"),
    ),
    Found(
        "STATIC_SIDE_REBUILT", Severity.ADVICE,
        {"plan": node("BroadcastHashJoin", SCAN, node("BroadcastExchange")), "interval_ms": 5_000},
        ({"plan": node("BroadcastHashJoin", SCAN, node("BroadcastExchange")), "interval_ms": 60_000},),
        ("every 5 s", "--checkpoint-every 60s"),
    ),
    Found(
        "SHUFFLE_TIMER", Severity.WARNING,
        {"slots": Slots((1, 1)), "settings": {}},
        ({"slots": Slots((1, 1))}, {"settings": {}}),
        ("50 ms", "tr.session()"),
    ),
    Found(
        "SHUFFLE_UNAUTHENTICATED", Severity.WARNING,
        {"slots": Slots((1, 1)), "settings": {"spark.authenticate": "true",
                                              "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1"}},
        ({"settings": {"spark.authenticate": "true"}},),
        ("spark.authenticate does not cover",),
    ),
    Found(
        "RECOVERY_LONG", Severity.ADVICE,
        {"interval_ms": 3_600_000}, ({"interval_ms": 300_000}, {"interval_ms": 3_600_000, **MICRO}),
        ("60 minutes",),
    ),
    Found(
        "REALTIME_NOT_NEEDED", Severity.ADVICE,
        {"windows_s": (3600.0,)}, ({"windows_s": (60.0,)}, {"windows_s": (3600.0,), **MICRO}),
        ("60 minutes", "2 slots"),
    ),
)  # fmt: skip


def findings(**changed: Any) -> list[Finding]:
    given = query(**changed)
    return [finding for each in checks.ALL for finding in each.check(given)]


def test_a_query_that_is_well_has_no_findings() -> None:
    assert findings() == []
    assert findings(mode=Mode.MICROBATCH) == []


@pytest.mark.parametrize("path", ["", "Arrow batches"])
def test_a_static_table_may_be_made_by_python_functions(path: str) -> None:
    table = node("BroadcastExchange", node("ArrowEvalPython", node("LocalTableScan"), functions=("score",), path=path))
    assert findings(plan=node("BroadcastHashJoin", SCAN, table)) == []


@pytest.mark.parametrize(
    ("name", "path", "held"),
    [("MapPartitions", "Arrow batches", False), ("MapPartitions", "", False), ("ArrowEvalPython", "", True)],
)
def test_rows_are_held_for_python_by_sparks_own_operators_alone(name: str, path: str, held: bool) -> None:
    asked = query(plan=node(name, SCAN, functions=("score",), path=path))
    assert ("Python" in {link.name for link in latency_chain(asked)}) is held


def test_what_carried_functions_add_is_a_link_each() -> None:
    lower = node("MapPartitions", SCAN, functions=("rate",), path="plain columns")
    upper = node("MapPartitions", lower, functions=("score", "rank"), path="pickled rows")
    links = {link.name: link for link in latency_chain(query(plan=upper))}
    assert links["rate"].ms > links["score, rank"].ms > 0
    assert "plain columns" in links["rate"].source
    assert "rate" not in {link.name for link in latency_chain(query(plan=upper, **MICRO))}


def test_each_call_of_carried_functions_is_told_with_its_own_path() -> None:
    lower = node("MapPartitions", SCAN, functions=("rate",), path="Arrow batches")
    told = findings(plan=node("MapPartitions", lower, functions=("score",), path="pickled rows"))
    assert [finding.severity for finding in told] == [Severity.ADVICE, Severity.ADVICE]
    assert ["pickled rows" in finding.why for finding in told] == [True, False]


def test_a_function_that_spark_calls_in_two_places_is_told_once() -> None:
    lower = node("MapPartitions", SCAN, functions=("score",), path="Arrow batches")
    assert len(findings(plan=node("MapPartitions", lower, functions=("score",), path="Arrow batches"))) == 1


@pytest.mark.parametrize("found", FOUND, ids=lambda found: f"{found.code} {found.says[0]}")
def test_a_check_speaks_and_its_way_out_silences_it(found: Found) -> None:
    spoken = [finding for finding in findings(**found.bad) if finding.code == found.code]
    assert len(spoken) == 1
    (finding,) = spoken
    assert finding.severity is found.severity
    told = " ".join((finding.title, finding.why, finding.fix, finding.where))
    for words in found.says:
        assert words in told
    for better in found.good:
        assert found.code not in {finding.code for finding in findings(**better)}, better


def test_microbatch_is_no_way_out_for_a_query_that_it_refuses_too() -> None:
    told = [finding for found in FOUND for finding in findings(**found.bad)]
    assert len([finding for finding in told if "microbatch" in finding.fix]) >= 10
    refused = [finding for found in FOUND for finding in findings(**found.bad, runs_in_microbatch=False)]
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
    told = findings(refusals=(replace(SORTED, line=""),), plan=node("Sort", SCAN, refused=True))
    assert [finding.code for finding in told] == ["OPERATOR_REFUSED"]


def test_a_pivot_is_called_so() -> None:
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


def test_every_check_has_a_code_of_its_own_and_a_case_here() -> None:
    codes = [each.CODE for each in checks.ALL]
    assert len(set(codes)) == len(codes)
    assert {found.code for found in FOUND} == set(codes)


@pytest.mark.parametrize("code", modules())
def test_every_check_says_what_not_to_do_and_what_to_do(code: str) -> None:
    said = inspect.getdoc(modules()[code]) or ""
    what, _, rest = said.partition("\n\nAnti-pattern:\n")
    bad, _, good = rest.partition("\n\nBest practice:\n")
    assert re.fullmatch(r"[^\n]+\.", what), "one sentence"
    assert bad.strip()
    assert good.strip()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", "AUTHENTICATION_FAILED"),
        ("org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed", "TLS_FAILED"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized", "NOT_AUTHORIZED"),
    ],
)
def test_what_sparks_client_is_refused_is_told_as_what_it_is(said: str, code: str) -> None:
    found = checks.broker_unreachable.check(query(refusals=(refusal("TAILRACE_BROKER_SILENT", said),)))
    assert [(each.code, each.why) for each in found] == [(code, said.partition(": ")[2])]
