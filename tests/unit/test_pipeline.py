import dataclasses
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DefinitionError, OptionRefused, SchemaInvalid, TailraceError
from tailrace.pipeline import KafkaSink, KafkaSource, Mode, Pipeline

SCHEMA = "id string, amount double"
# Long enough that it cannot occur in a text by chance.
SECRETS = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=12, max_size=40)


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


def test_one_topic_and_several_read_alike() -> None:
    assert KafkaSource("payments", SCHEMA).topic_names == ("payments",)
    assert KafkaSource(["payments", "refunds"], SCHEMA).topic_names == ("payments", "refunds")


def test_a_list_that_changes_later_changes_no_definition() -> None:
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
    made = pipeline()
    copy = dataclasses.replace(made, source=dataclasses.replace(made.source, topics="payments-2"))
    assert copy.sources[0].topic_names == ("payments-2",)
    assert copy.transform is made.transform


@pytest.mark.parametrize("topic", ["", "a b", "a/b", ".", "..", "ä", "x" * 250, "a,b", 7, None])
def test_what_kafka_cannot_call_a_topic_is_refused(topic: Any) -> None:
    with pytest.raises(DefinitionError):
        KafkaSource([topic], SCHEMA)
    with pytest.raises(DefinitionError):
        KafkaSink(topic)


def test_topic_names_at_the_limit_are_taken() -> None:
    assert KafkaSource("x" * 249, SCHEMA).topic_names == ("x" * 249,)
    assert KafkaSink("a.b_c-D9").topic == "a.b_c-D9"


@pytest.mark.parametrize("topics", [[], ["payments", "payments"]])
def test_no_topic_and_one_topic_twice_are_refused(topics: list[str]) -> None:
    with pytest.raises(DefinitionError):
        KafkaSource(topics, SCHEMA)


def test_an_empty_schema_is_refused() -> None:
    with pytest.raises(SchemaInvalid):
        KafkaSource("payments", "  ")


def test_starting_offsets_are_in_sparks_words() -> None:
    offsets = {"payments": {"0": 17, "1": -2}}
    assert KafkaSource("payments", SCHEMA).starting_offsets == "latest"
    assert KafkaSource("payments", SCHEMA, starting="earliest").starting_offsets == "earliest"
    assert json.loads(KafkaSource("payments", SCHEMA, starting=offsets).starting_offsets) == offsets


def test_an_unknown_starting_place_is_refused() -> None:
    with pytest.raises(OptionRefused, match="newest"):
        KafkaSource("payments", SCHEMA, starting="newest")


@pytest.mark.parametrize(
    "option",
    ["kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "startingOffsets", "STARTINGOFFSETS"],
)
def test_source_options_that_have_a_place_elsewhere_are_refused(option: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        KafkaSource("payments", SCHEMA, options={option: "x"})
    assert option in refused.value.what
    assert refused.value.fix


@pytest.mark.parametrize(
    "option", ["kafka.bootstrap.servers", "topic", "checkpointLocation", "kafka.transactional.id", "Topic"]
)
def test_sink_options_that_have_a_place_elsewhere_are_refused(option: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        KafkaSink("decisions", options={option: "x"})
    assert option in refused.value.what
    assert refused.value.fix


def test_option_values_take_sparks_spelling() -> None:
    options: dict[str, Any] = {"failOnDataLoss": False, "maxOffsetsPerTrigger": 10, "kafka.acks": "All"}
    assert KafkaSource("payments", SCHEMA, options=options).options == {
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "10",
        "kafka.acks": "All",
    }


@pytest.mark.parametrize("name", ["", " fraud", "a/b", "../up", "-x", ".hidden", "fraud\n"])
def test_a_name_that_cannot_name_a_folder_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError):
        pipeline(name=name)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"source": "payments"}, "source= is a str, not a KafkaSource"),
        ({"sink": KafkaSource("payments", SCHEMA)}, "sink= is a KafkaSource, not a KafkaSink"),
        ({"transform": "decide"}, "transform= is a str, not a function"),
        ({"sink": KafkaSink("payments")}, "which it also reads"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_words(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        pipeline(**changed)


def test_modes_are_the_words_that_users_write() -> None:
    assert [str(mode) for mode in Mode] == ["realtime", "microbatch"]


@given(secret=SECRETS)
def test_no_definition_shows_the_value_of_an_option(secret: str) -> None:
    options = {"kafka.sasl.jaas.config": f'Login required password="{secret}";', "kafka.ssl.key.password": secret}
    source, sink = KafkaSource("payments", SCHEMA, options=options), KafkaSink("decisions", options=options)
    for shown in (repr(source), repr(sink), repr(pipeline(source=source, sink=sink)), str(source), f"{sink}"):
        assert secret not in shown
        assert repr(secret)[1:-1] not in shown


@given(secret=SECRETS)
def test_no_refusal_repeats_the_value_of_an_option(secret: str) -> None:
    options = {"kafka.ssl.key.password": secret, "kafka.bootstrap.servers": secret}
    source = KafkaSource("payments", SCHEMA, options={"kafka.ssl.key.password": secret})
    refusals = [
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
