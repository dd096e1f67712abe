import copy
import dataclasses
import json
import pickle
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DefinitionError, OptionRefused, SchemaInvalid, TailraceError
from tailrace.pipeline import FORMATS, POLICIES, KafkaSink, KafkaSource, Mode, Pipeline

SCHEMA = "id string, amount double"
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TOPICS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249).filter(
    lambda name: name not in (".", "..")
)
# Begun so that it cannot occur in a text by chance: Hypothesis also tries words that it finds in the source.
SECRETS = st.text(string.ascii_letters + string.digits + string.punctuation, max_size=30).map("~s3cr3t~".__add__)


def same(frame: Any) -> Any:
    return frame


def pipeline(**changed: Any) -> Pipeline:
    definition: dict[str, Any] = {
        "name": "fraud",
        "source": KafkaSource("payments", SCHEMA),
        "transform": same,
        "sink": KafkaSink("decisions"),
    }
    return Pipeline(**(definition | changed))


def test_one_topic_becomes_a_tuple() -> None:
    assert KafkaSource("payments", SCHEMA).topic_names == ("payments",)
    assert KafkaSource(["payments", "refunds"], SCHEMA).topic_names == ("payments", "refunds")


def test_later_changes_of_a_list_do_not_change_the_source() -> None:
    topics, options = ["payments"], {"maxOffsetsPerTrigger": "5"}
    source = KafkaSource(topics, SCHEMA, options=options)
    topics.append("refunds")
    options["failOnDataLoss"] = "false"
    assert source.topic_names == ("payments",)
    assert source.options == {"maxOffsetsPerTrigger": "5"}


def test_definitions_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        pipeline().name = "other"  # type: ignore[misc]


def test_a_pipeline_can_be_copied_with_a_change() -> None:
    original = pipeline()
    changed = dataclasses.replace(original, source=dataclasses.replace(original.sources[0], topics="payments-2"))
    assert changed.sources[0].topic_names == ("payments-2",)
    assert changed.transform is original.transform


@pytest.mark.parametrize("topic", ["", "a b", "a/b", ".", "..", "ä", "x" * 250, "a,b", 7, None])
def test_invalid_topic_names_are_refused(topic: Any) -> None:
    with pytest.raises(DefinitionError):
        KafkaSource([topic], SCHEMA)
    with pytest.raises(DefinitionError):
        KafkaSink(topic)


def test_topic_names_at_the_limit_are_accepted() -> None:
    assert KafkaSource("x" * 249, SCHEMA).topic_names == ("x" * 249,)
    assert KafkaSink("a.b_c-D9").topic == "a.b_c-D9"


@pytest.mark.parametrize("topics", [[], ["payments", "payments"]])
def test_missing_and_repeated_topics_are_refused(topics: list[str]) -> None:
    with pytest.raises(DefinitionError):
        KafkaSource(topics, SCHEMA)


def test_an_empty_schema_is_refused() -> None:
    with pytest.raises(SchemaInvalid):
        KafkaSource("payments", "  ")


def test_topics_in_words_and_as_spark_options() -> None:
    one, two = KafkaSource("payments", SCHEMA), KafkaSource(["payments", "refunds"], SCHEMA)
    assert (one.in_words, one.subscription) == ("payments", {"subscribe": "payments"})
    assert (two.in_words, two.subscription) == ("payments, refunds", {"subscribe": "payments,refunds"})


def test_a_pattern_replaces_topics() -> None:
    source = KafkaSource(pattern="payments-.*", schema=SCHEMA)
    assert source.topic_names == ()
    assert source.in_words == "topics like payments-.*"
    assert source.subscription == {"subscribePattern": "payments-.*"}


@given(names=st.lists(TOPICS, min_size=1, max_size=5, unique=True))
def test_topics_round_trip_through_spark_options(names: list[str]) -> None:
    assert KafkaSource(names, SCHEMA).subscription["subscribe"].split(",") == names


def test_both_topics_and_a_pattern_are_refused() -> None:
    with pytest.raises(DefinitionError, match="both topics and a pattern"):
        KafkaSource("payments", SCHEMA, pattern="payments-.*")


def test_neither_topics_nor_a_pattern_is_refused() -> None:
    with pytest.raises(DefinitionError, match="names no topic"):
        KafkaSource(schema=SCHEMA)


@pytest.mark.parametrize("pattern", ["(", "payments-[", "*"])
def test_an_invalid_pattern_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        KafkaSource(pattern=pattern, schema=SCHEMA)
    assert repr(pattern) in refused.value.what
    assert refused.value.why


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(DefinitionError, match="invalid format='avro'") as refused:
        KafkaSource("payments", SCHEMA, format="avro")
    assert [known for known in FORMATS if known not in refused.value.fix] == []


@pytest.mark.parametrize("plain", ["string", "bytes"])
def test_other_formats_have_no_schema(plain: str) -> None:
    assert KafkaSource("payments", format=plain).schema is None


@pytest.mark.parametrize("plain", ["string", "bytes"])
@pytest.mark.parametrize(
    "given_too", [{"schema": SCHEMA}, {"event_time": "at"}, {"json_options": {"timestampFormat": "yyyy"}}]
)
def test_json_parameters_are_refused_for_other_formats(plain: str, given_too: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="has one column, value"):
        KafkaSource("payments", format=plain, **given_too)


def test_json_without_a_schema_is_refused() -> None:
    with pytest.raises(SchemaInvalid) as refused:
        KafkaSource("payments")
    assert 'format="string"' in refused.value.fix


def test_starting_offsets_as_spark_options() -> None:
    offsets = {"payments": {"0": 17, "1": -2}}
    assert KafkaSource("payments", SCHEMA).starting_options == {"startingOffsets": "latest"}
    assert KafkaSource("payments", SCHEMA, starting="earliest").starting_options == {"startingOffsets": "earliest"}
    options = KafkaSource("payments", SCHEMA, starting=offsets).starting_options
    assert list(options) == ["startingOffsets"]
    assert json.loads(options["startingOffsets"]) == offsets


def test_a_starting_time_is_passed_in_milliseconds() -> None:
    options = KafkaSource("payments", SCHEMA, starting=NOON).starting_options
    assert options["startingTimestamp"] == "1767268800000"
    assert options["startingOffsetsByTimestampStrategy"] == "latest", "a partition without later records is no error"
    assert "startingOffsets" not in options


@given(
    moment=st.datetimes(datetime(2005, 1, 1), datetime(2038, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds
    hours=st.integers(-12, 14),
)
def test_a_starting_time_is_independent_of_the_time_zone(moment: datetime, hours: int) -> None:
    here = KafkaSource("payments", SCHEMA, starting=moment)
    there = KafkaSource("payments", SCHEMA, starting=moment.astimezone(timezone(timedelta(hours=hours))))
    assert here.starting_options == there.starting_options
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert here.starting_options["startingTimestamp"] == str(whole)


def test_a_starting_time_without_a_time_zone_is_refused() -> None:
    with pytest.raises(OptionRefused, match="has no time zone") as refused:
        KafkaSource("payments", SCHEMA, starting=NOON.replace(tzinfo=None))
    assert "tzinfo" in refused.value.fix


def test_an_invalid_starting_value_is_refused() -> None:
    with pytest.raises(OptionRefused, match="newest"):
        KafkaSource("payments", SCHEMA, starting="newest")


@pytest.mark.parametrize(
    "option",
    [
        "kafka.bootstrap.servers",
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "STARTINGOFFSETS",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "includeHeaders",
    ],
)
def test_source_options_with_a_parameter_are_refused(option: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        KafkaSource("payments", SCHEMA, options={option: "x"})
    assert option in refused.value.what
    assert refused.value.fix


@pytest.mark.parametrize(
    "option",
    ["kafka.bootstrap.servers", "topic", "checkpointLocation", "kafka.transactional.id", "Topic", "includeHeaders"],
)
def test_sink_options_with_a_parameter_are_refused(option: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        KafkaSink("decisions", options={option: "x"})
    assert option in refused.value.what
    assert refused.value.fix


@pytest.mark.parametrize("option", ["mode", "MODE", "columnNameOfCorruptRecord"])
def test_json_options_that_malformed_sets_are_refused(option: str) -> None:
    with pytest.raises(OptionRefused, match="json_options") as refused:
        KafkaSource("payments", SCHEMA, json_options={option: "x"})
    assert option in refused.value.what
    assert "malformed=" in refused.value.fix


def test_json_options_are_converted_to_sparks_spelling() -> None:
    options: dict[str, Any] = {"allowSingleQuotes": False, "timestampFormat": "yyyy"}
    source = KafkaSource("payments", SCHEMA, json_options=options)
    options["locale"] = "de"
    assert source.json_options == {"allowSingleQuotes": "false", "timestampFormat": "yyyy"}
    assert source.options == {}


@pytest.mark.parametrize("name", ["", "__tailrace_kafka"])
def test_an_invalid_metadata_column_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="metadata="):
        KafkaSource("payments", SCHEMA, metadata=name)


def test_metadata_and_event_time_are_kept_as_given() -> None:
    source = KafkaSource("payments", "at timestamp", metadata="kafka", event_time="at")
    assert (source.metadata, source.event_time) == ("kafka", "at")


def test_option_values_are_converted_to_sparks_spelling() -> None:
    options: dict[str, Any] = {"failOnDataLoss": False, "maxOffsetsPerTrigger": 10, "kafka.acks": "All"}
    assert KafkaSource("payments", SCHEMA, options=options).options == {
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "10",
        "kafka.acks": "All",
    }


def test_a_sink_takes_a_topic_a_topic_column_or_both() -> None:
    assert KafkaSink("decisions").in_words == "decisions"
    assert KafkaSink(topic_column="target").in_words == "the topic in target"
    assert KafkaSink("decisions", topic_column="target").in_words == "decisions or the topic in target"


def test_a_sink_without_any_topic_is_refused() -> None:
    with pytest.raises(DefinitionError, match="names no topic") as refused:
        KafkaSink(key="id")
    assert "topic_column=" in refused.value.fix


@pytest.mark.parametrize("name", ["tailrace.topic", "tailrace.", "tailrace.mine"])
def test_reserved_headers_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="reserved for Tailrace") as refused:
        KafkaSink("decisions", headers={"trace": "trace_id", name: "id"})
    assert repr(name) in refused.value.what


def test_later_changes_of_headers_do_not_change_the_sink() -> None:
    headers = {"trace": "trace_id", "Tailrace-like": "id", "tailrace": "id"}
    sink = KafkaSink("decisions", headers=headers)
    headers["tailrace.topic"] = "id"
    assert sink.headers == {"trace": "trace_id", "Tailrace-like": "id", "tailrace": "id"}


def test_headers_may_be_one_column() -> None:
    assert KafkaSink("decisions", headers="tailrace.headers").headers == "tailrace.headers"


def test_columns_of_a_sink_are_kept_as_given() -> None:
    sink = KafkaSink("decisions", "id", value="body", event_time="at")
    assert (sink.topic, sink.key, sink.value, sink.event_time) == ("decisions", "id", "body", "at")


@pytest.mark.parametrize(
    "make",
    [
        lambda: KafkaSource("payments", SCHEMA, "payments-.*"),  # type: ignore[call-arg]
        lambda: KafkaSink("decisions", "id", "target"),  # type: ignore[call-arg]
        lambda: Pipeline("fraud", KafkaSource("payments", SCHEMA), same, KafkaSink("decisions"), "drop"),  # type: ignore[call-arg]
    ],
)
def test_most_parameters_are_keyword_only(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="positional"):
        make()


def test_one_source_becomes_a_tuple() -> None:
    payments, refunds = KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA)
    assert pipeline(source=payments).sources == (payments,)
    several = [payments, refunds]
    original = pipeline(source=several)
    several.pop()
    assert original.sources == original.source == (payments, refunds)


@pytest.mark.parametrize("sources", [[], (), [KafkaSource("payments", SCHEMA), "refunds"], {"a": 1}, None])
def test_missing_and_invalid_sources_are_refused(sources: Any) -> None:
    with pytest.raises(DefinitionError, match=r"source= is a .*, not a KafkaSource") as refused:
        pipeline(source=sources)
    assert "list" in refused.value.fix


@pytest.mark.parametrize("policy", ["", "ignore", "DROP", "dead_letter"])
def test_an_unknown_malformed_policy_is_refused(policy: str) -> None:
    with pytest.raises(DefinitionError, match="malformed=") as refused:
        pipeline(malformed=policy)
    assert [known for known in POLICIES if known not in refused.value.fix] == []


def test_default_topic_of_dead_letters() -> None:
    assert pipeline().malformed == "dead-letter"
    assert pipeline().dead_letter_topic == "fraud.dead-letters"
    assert pipeline(dead_letters="broken").dead_letter_topic == "broken"


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_other_malformed_policies_have_no_dead_letters(policy: str) -> None:
    assert pipeline(malformed=policy).dead_letter_topic is None
    with pytest.raises(DefinitionError, match="has a topic for dead letters, but"):
        pipeline(malformed=policy, dead_letters="broken")


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250])
def test_invalid_dead_letter_topics_are_refused(topic: str) -> None:
    with pytest.raises(DefinitionError, match="invalid topic name"):
        pipeline(dead_letters=topic)


READ_BY_NAME = KafkaSource(["payments", "decisions"], SCHEMA)
READ_BY_PATTERN = KafkaSource(pattern="decision.", schema=SCHEMA)
OTHER = KafkaSource("clicks", SCHEMA)


@pytest.mark.parametrize(
    "sources", [READ_BY_NAME, READ_BY_PATTERN, [OTHER, READ_BY_NAME], [OTHER, READ_BY_PATTERN]], ids=repr
)
def test_a_pipeline_that_reads_its_own_output_is_refused(sources: Any) -> None:
    with pytest.raises(DefinitionError, match="writes to topic 'decisions', which it also reads"):
        pipeline(source=sources, sink=KafkaSink("decisions", topic_column="target"))
    with pytest.raises(DefinitionError, match="sends its dead letters to topic 'decisions', which it also reads"):
        pipeline(source=sources, sink=KafkaSink("out"), dead_letters="decisions")
    assert pipeline(source=sources, sink=KafkaSink(topic_column="target")).sink.topic is None, "only the data knows"


def test_a_pattern_must_not_match_the_default_dead_letter_topic() -> None:
    everything = KafkaSource(pattern="fraud.*", schema=SCHEMA)
    with pytest.raises(DefinitionError, match=r"sends its dead letters to topic 'fraud\.dead-letters'"):
        pipeline(source=everything)
    assert pipeline(source=everything, malformed="drop").dead_letter_topic is None
    assert pipeline(source=everything, dead_letters="broken").dead_letter_topic == "broken"


def test_a_pattern_matches_whole_names() -> None:
    source = KafkaSource(pattern="decision", schema=SCHEMA)
    assert pipeline(source=source, sink=KafkaSink("decisions")).sources == (source,)


def test_a_pipeline_can_be_pickled() -> None:
    sources = [KafkaSource("payments", SCHEMA, starting=NOON), KafkaSource(pattern="r.*", format="bytes")]
    original = pipeline(source=sources, sink=KafkaSink("decisions", headers={"a": "id"}), dead_letters="broken")
    assert pickle.loads(pickle.dumps(original)) == original
    assert copy.deepcopy(original) == original


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"malformed": "fail"},
        {"dead_letters": "broken"},
        {"lineage": False},
        {"sink": KafkaSink("out")},
        {"source": (OTHER, KafkaSource("views", SCHEMA))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_part_of_a_pipeline_can_be_changed_in_a_copy(changes: dict[str, Any]) -> None:
    original = pipeline()
    changed = dataclasses.replace(original, **changes)
    assert {name: getattr(changed, name) for name in changes} == changes
    assert dataclasses.replace(changed, **{name: getattr(original, name) for name in changes}) == original


def test_a_copy_is_validated() -> None:
    with pytest.raises(DefinitionError, match="which it also reads"):
        dataclasses.replace(pipeline(), sink=KafkaSink("payments"))
    with pytest.raises(DefinitionError, match="both topics and a pattern"):
        dataclasses.replace(KafkaSource("payments", SCHEMA), pattern="p.*")


@pytest.mark.parametrize("name", ["", " fraud", "a/b", "../up", "-x", ".hidden", "fraud\n"])
def test_a_pipeline_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError):
        pipeline(name=name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": "payments"}, "source= is a str, not a KafkaSource"),
        ({"sink": KafkaSource("payments", SCHEMA)}, "sink= is a KafkaSource, not a KafkaSink"),
        ({"transform": "decide"}, "transform= is a str, not a function"),
        ({"sink": KafkaSink("payments")}, "which it also reads"),
    ],
)
def test_wrong_types_are_refused_with_a_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        pipeline(**changed)


def test_modes_are_strings() -> None:
    assert [str(mode) for mode in Mode] == ["realtime", "microbatch"]


@given(secret=SECRETS)
def test_repr_hides_option_values(secret: str) -> None:
    options = {"kafka.sasl.jaas.config": f'Login required password="{secret}";', "kafka.ssl.key.password": secret}
    source, sink = KafkaSource("payments", SCHEMA, options=options), KafkaSink("decisions", options=options)
    for shown in (repr(source), repr(sink), repr(pipeline(source=source, sink=sink)), str(source), f"{sink}"):
        assert secret not in shown
        assert repr(secret)[1:-1] not in shown


@given(secret=SECRETS)
def test_errors_hide_option_values(secret: str) -> None:
    options = {"kafka.ssl.key.password": secret, "kafka.bootstrap.servers": secret}
    source = KafkaSource("payments", SCHEMA, options={"kafka.ssl.key.password": secret})
    refusals: list[Callable[[], object]] = [
        lambda: KafkaSource("payments", SCHEMA, options=options),
        lambda: KafkaSink("decisions", options=options),
        lambda: pipeline(source=source, sink=KafkaSink("payments", options={"kafka.ssl.key.password": secret})),
        lambda: pipeline(sink=source),
        lambda: pipeline(source=source, transform=None),
    ]
    for refuse in refusals:
        with pytest.raises(TailraceError) as refused:
            refuse()
        assert secret not in str(refused.value) + refused.value.detail + repr(refused.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python_errors": "drop"}, "invalid python_errors='drop'"),
        ({"python_errors": "dead-letter", "lineage": False}, "but lineage=False"),
    ],
)
def test_values_of_python_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        Pipeline("p", KafkaSource("in", "a int"), lambda rows: rows, KafkaSink("out"), **changes)


def test_python_errors_alone_may_use_a_dead_letter_topic() -> None:
    here = Pipeline(
        "p",
        KafkaSource("in", "a int"),
        lambda rows: rows,
        KafkaSink("out"),
        malformed="fail",
        python_errors="dead-letter",
        dead_letters="letters",
    )
    assert here.dead_letter_topic == "letters"
