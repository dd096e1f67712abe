"""A pipeline's topics, at a broker made of a dictionary."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.errors import (
    BrokerUnreachable,
    KafkaError,
    NotAuthorized,
    OptionRefused,
    TopicExists,
    TopicMissing,
)
from tailrace.kafka.rights import Rights
from tailrace.kafka.topics import ClientConfig
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.prepare import pipeline_topics, rights
from tailrace.prepare.pipeline_topics import PipelineTopics, from_the_beginning

SERVERS = "broker.example:9092"
SCHEMA = "id string, amount double"
COLUMNS = StructType([StructField("id", StringType())])
KEY_STORE = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/etc/kafka/trust.jks"}
SPARK: Any = object()
"""Stands for a session; nothing here may touch it."""


@dataclass
class FakeKafka:
    """Topics and their partitions, and every question that was asked."""

    topics: dict[str, int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    refusal: KafkaError | None = None
    made: list[tuple[str, int]] = field(default_factory=list)
    asked_through_spark: list[tuple[dict[str, str], list[str]]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    rights: dict[str, Rights] = field(default_factory=dict)
    """What the user may do with a topic; everything, where nothing is said."""
    tried: list[str] = field(default_factory=list)
    """The topics that were made to see whether they could be."""

    def topic_rights(self, config: ClientConfig, topics: Iterable[str]) -> dict[str, Rights]:
        return {topic: self.rights.get(topic, frozenset({"READ", "WRITE"})) for topic in topics}

    def kafka_topic_rights(self, spark: object, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, Rights]:
        assert spark is SPARK
        if self.rights.get(next(iter(topics))) == frozenset():
            raise NotAuthorized("the broker does not say")
        return self.topic_rights({}, topics)

    def require_creatable(self, config: ClientConfig, topic: str) -> None:
        self.tried.append(topic)
        if self.refusal is not None:
            raise self.refusal

    def partition_counts(self, config: ClientConfig, topics: Iterable[str]) -> dict[str, int]:
        self._note(config)
        counts = {}
        for topic in topics:
            if topic not in self.topics:
                raise TopicMissing(f"topic {topic!r} does not exist")
            counts[topic] = self.topics[topic]
        return counts

    def list_topics(self, config: ClientConfig) -> dict[str, int]:
        self._note(config)
        return dict(self.topics)

    def create_topic(self, config: ClientConfig, name: str, partitions: int) -> bool:
        self._note(config)
        if self.refusal is not None:
            raise self.refusal
        self.made.append((name, partitions))
        self.topics[name] = partitions
        return True

    def offsets(
        self, config: ClientConfig, counts: Mapping[str, int], *, committed: bool = False
    ) -> dict[str, dict[int, int]]:
        self._note(config)
        return {
            topic: {number: self.ends.get((topic, number), 0) for number in range(count)}
            for topic, count in counts.items()
        }

    def create_kafka_topic(
        self, spark: object, options: Mapping[str, str], topic: str, *, validate_only: bool = False
    ) -> bool:
        assert spark is SPARK
        if validate_only:
            self.require_creatable({}, topic)
            return True
        self.asked_through_spark.append((dict(options), [topic]))
        if self.refusal is not None:
            raise self.refusal
        if topic in self.topics:
            return False
        self.topics[topic] = 1
        return True

    def kafka_partitions(self, spark: object, options: Mapping[str, str], topics: list[str]) -> dict[str, int]:
        assert spark is SPARK
        self.asked_through_spark.append((dict(options), list(topics)))
        if missing := set(topics) - set(self.topics):
            raise TopicMissing(f"topics {missing} do not exist")
        return {topic: self.topics[topic] for topic in topics}

    def _note(self, config: ClientConfig) -> None:
        self.addresses.append(str(config["bootstrap.servers"]))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    fake = FakeKafka({"payments": 2, "payments-eu": 3, "refunds": 1, "decisions": 1})
    for name in ("partition_counts", "list_topics", "create_topic", "create_kafka_topic", "kafka_partitions"):
        monkeypatch.setattr(pipeline_topics, name, getattr(fake, name))
    for name in ("visible_ends",):
        monkeypatch.setattr(pipeline_topics, name, fake.offsets)
    for name in ("topic_rights", "kafka_topic_rights", "require_creatable", "create_kafka_topic"):
        monkeypatch.setattr(rights, name, getattr(fake, name))
    return fake


def same(frame: Any) -> Any:
    return frame


def pipeline(*sources: KafkaSource, sink: KafkaSink | None = None, **more: Any) -> Pipeline:
    return Pipeline(
        "fraud",
        sources or (KafkaSource("payments", SCHEMA),),
        same,
        sink or KafkaSink("decisions"),
        **more,
    )


def topics(*sources: KafkaSource, sink: KafkaSink | None = None, **more: Any) -> PipelineTopics:
    return PipelineTopics(pipeline(*sources, sink=sink, **more), SERVERS)


def test_the_topics_that_sources_name_are_known_without_a_broker() -> None:
    several = topics(
        KafkaSource(["payments", "refunds"], SCHEMA),
        KafkaSource(pattern="clicks-.*", schema=SCHEMA),
        KafkaSource("views", SCHEMA),
    )
    assert several.named == ("payments", "refunds", "views")


def test_each_source_has_partitions_of_its_own(kafka: FakeKafka) -> None:
    both = topics(KafkaSource(["payments", "refunds"], SCHEMA), KafkaSource("payments-eu", SCHEMA))
    assert both.sources() == [{"payments": 2, "refunds": 1}, {"payments-eu": 3}]
    assert set(kafka.addresses) == {SERVERS}


def test_a_topic_that_is_not_there_is_told(kafka: FakeKafka) -> None:
    with pytest.raises(TopicMissing, match="clicks"):
        topics(KafkaSource("payments", SCHEMA), KafkaSource("clicks", SCHEMA)).sources()


def test_a_pattern_finds_the_topics_whose_whole_name_it_matches(kafka: FakeKafka) -> None:
    kafka.topics |= {"old-payments": 9, "payments2": 1}
    found = topics(KafkaSource(pattern="payments(-.*)?", schema=SCHEMA), KafkaSource("refunds", SCHEMA)).sources()
    assert found == [{"payments": 2, "payments-eu": 3}, {"refunds": 1}]


def test_a_pattern_like_no_topic_is_refused_before_anything_starts(kafka: FakeKafka) -> None:
    with pytest.raises(TopicMissing, match="'clicks-") as refused:
        topics(KafkaSource(pattern="clicks-.*", schema=SCHEMA)).sources()
    assert "pattern" in refused.value.fix


@pytest.mark.parametrize(
    ("starting", "missing"),
    [
        ({"payments": {"0": 17}}, "payments-1"),
        ({"refunds": {"0": 1, "1": 1}}, "payments-0, payments-1"),
    ],
)
def test_offsets_that_leave_a_partition_out_are_refused_by_its_name(
    kafka: FakeKafka, starting: dict[str, dict[str, int]], missing: str
) -> None:
    with pytest.raises(OptionRefused) as refused:
        topics(KafkaSource("payments", SCHEMA, starting=starting)).sources()
    assert refused.value.what.endswith(f"says nothing about {missing}")
    assert "-2" in refused.value.fix


def test_offsets_of_topics_that_a_pattern_finds_must_be_complete_too(kafka: FakeKafka) -> None:
    source = KafkaSource(pattern="payments.*", schema=SCHEMA, starting={"payments": {"0": 17, "1": 0}})
    with pytest.raises(OptionRefused, match="payments-eu-0, payments-eu-1, payments-eu-2"):
        topics(source).sources()


@pytest.mark.parametrize(
    "starting", ["latest", "earliest", datetime(2026, 1, 1, tzinfo=UTC), {"payments": {"0": 17, "1": -1}}]
)
def test_any_other_place_to_start_from_is_left_to_spark(kafka: FakeKafka, starting: Any) -> None:
    assert topics(KafkaSource("payments", SCHEMA, starting=starting)).sources() == [{"payments": 2}]


def test_the_topic_to_write_to_must_be_there(kafka: FakeKafka) -> None:
    topics().require_sink()
    with pytest.raises(TopicMissing, match="nowhere"):
        topics(sink=KafkaSink("nowhere")).require_sink()
    with pytest.raises(TopicMissing, match="nowhere"):
        topics(sink=KafkaSink("nowhere", topic_column="target")).require_sink()


def test_topics_that_a_column_names_show_only_in_the_data(kafka: FakeKafka) -> None:
    topics(sink=KafkaSink(topic_column="target")).require_sink()
    assert kafka.addresses == []


def test_the_topic_for_dead_letters_is_made_and_that_is_said(kafka: FakeKafka) -> None:
    said: list[str] = []
    topics().require_dead_letters(SPARK, said.append)
    assert kafka.made == [("fraud.dead-letters", 1)]
    assert said == ["Made the topic fraud.dead-letters for records that cannot be read."]


def test_a_topic_for_dead_letters_that_is_there_stays_as_it_is(kafka: FakeKafka) -> None:
    kafka.topics["broken"] = 7
    topics(dead_letters="broken").require_dead_letters(SPARK, pytest.fail)
    assert kafka.made == []


def test_a_topic_for_dead_letters_is_made_where_nobody_listens_too(kafka: FakeKafka) -> None:
    topics(dead_letters="broken").require_dead_letters(SPARK, None)
    assert kafka.made == [("broken", 1)]


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_without_dead_letters_no_topic_is_made(kafka: FakeKafka, policy: str) -> None:
    topics(malformed=policy).require_dead_letters(SPARK, pytest.fail)
    assert kafka.addresses == []


@pytest.mark.parametrize(
    "refusal",
    [
        BrokerUnreachable("did not make it", why="no answer", detail="all of it"),
        NotAuthorized("may not make it", why="Not authorized"),
        TopicExists("exists with 3 partitions"),
    ],
    ids=lambda refusal: refusal.code,
)
@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_a_topic_for_dead_letters_that_is_refused_ends_the_start_with_the_ways_out(
    kafka: FakeKafka, refusal: KafkaError, options: dict[str, str]
) -> None:
    kafka.refusal = refusal
    with pytest.raises(KafkaError) as refused:
        topics(sink=KafkaSink("decisions", options=options)).require_dead_letters(SPARK, pytest.fail)
    assert type(refused.value) is type(refusal)
    assert refused.value.what == "the dead-letter topic 'fraud.dead-letters' of pipeline 'fraud' cannot be used"
    assert refused.value.why == (refusal.why or refusal.what)
    assert refused.value.detail == refusal.detail
    assert [way for way in ("dead_letters=", "'drop'", "'fail'") if way not in refused.value.fix] == []


@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_a_check_tries_whether_dead_letters_could_be_written_and_makes_nothing(
    kafka: FakeKafka, options: dict[str, str]
) -> None:
    here = topics(sink=KafkaSink("decisions", options=options))
    here.require_possible_dead_letters(SPARK)
    assert (kafka.tried, kafka.made) == (["fraud.dead-letters"], [])
    kafka.refusal = NotAuthorized("may not make it", why="Not authorized")
    with pytest.raises(NotAuthorized, match="cannot be used"):
        here.require_possible_dead_letters(SPARK)
    kafka.rights["fraud.dead-letters"], kafka.refusal = frozenset(), None
    with pytest.raises(NotAuthorized, match="cannot be used") as unseen:
        here.require_possible_dead_letters(SPARK)
    assert "WRITE" in unseen.value.why, "it could be made, and not be written to"
    del kafka.rights["fraud.dead-letters"]
    kafka.topics["fraud.dead-letters"] = 1
    here.require_possible_dead_letters(SPARK)
    kafka.rights["fraud.dead-letters"], kafka.refusal = frozenset({"DESCRIBE"}), None
    for ask in (here.require_possible_dead_letters, lambda spark: here.require_dead_letters(spark, None)):
        with pytest.raises(NotAuthorized, match="may not write to topic 'fraud"):
            ask(SPARK)


@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_topics_that_may_not_be_used_are_refused(kafka: FakeKafka, options: dict[str, str]) -> None:
    kafka.rights = {"payments": frozenset({"WRITE", "DESCRIBE"}), "decisions": frozenset({"READ"})}
    here = topics(KafkaSource("payments", SCHEMA, options=options), sink=KafkaSink("decisions", options=options))
    with pytest.raises(NotAuthorized, match="may not read topic 'payments'") as refused:
        here.sources() if not options else here.sources_by(SPARK)
    assert "grants DESCRIBE, WRITE" in refused.value.why
    with pytest.raises(NotAuthorized, match="may not write to topic 'decisions'"):
        here.require_sink() if not options else here.require_sink_by(SPARK)


def test_rights_of_which_the_broker_says_nothing_are_known_to_be_unknown(kafka: FakeKafka) -> None:
    kafka.rights = {"payments": None, "decisions": None}
    here = topics(KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA))
    here.sources()
    here.require_sink()
    assert here.rights_unknown == {"payments", "decisions"}


def test_behind_a_java_key_store_the_sources_wait_for_spark(kafka: FakeKafka) -> None:
    one_of_two = topics(KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA, options=KEY_STORE))
    assert one_of_two.sources() is None
    assert one_of_two.sources_by(SPARK) == [{"payments": 2}, {"refunds": 1}]
    address = {"kafka.bootstrap.servers": SERVERS}
    assert kafka.asked_through_spark == [(address, ["payments"]), (KEY_STORE | address, ["refunds"])]


def test_behind_a_java_key_store_the_sink_is_left_to_spark(kafka: FakeKafka) -> None:
    topics(sink=KafkaSink("nowhere", options=KEY_STORE)).require_sink()
    assert kafka.addresses == []


def test_behind_a_java_key_store_spark_makes_the_topic_for_dead_letters(kafka: FakeKafka) -> None:
    said: list[str] = []
    behind = topics(sink=KafkaSink("decisions", options=KEY_STORE))
    behind.require_dead_letters(SPARK, said.append)
    assert kafka.asked_through_spark == 2 * [(KEY_STORE | {"kafka.bootstrap.servers": SERVERS}, ["fraud.dead-letters"])]
    assert len(said) == 1
    behind.require_dead_letters(SPARK, pytest.fail)


def test_behind_a_java_key_store_a_bounded_run_in_real_time_is_refused(kafka: FakeKafka) -> None:
    with pytest.raises(OptionRefused, match="cannot be run once in real time") as refused:
        topics(KafkaSource("payments", SCHEMA, options=KEY_STORE)).bound([{"payments": 2}], alone=False)
    assert refused.value.fix == "--mode microbatch"
    assert kafka.addresses == []


def test_a_bounded_run_ends_where_the_topics_end_when_it_begins(kafka: FakeKafka) -> None:
    kafka.ends = {("payments", 0): 5, ("payments", 1): 7, ("refunds", 0): 3}
    both = topics(KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA))
    bound = both.bound([{"payments": 2}, {"refunds": 1}], alone=True)
    assert bound.ends == [{"payments": {0: 5, 1: 7}}, {"refunds": {0: 3}}]
    kafka.ends["payments", 0] = 6
    assert bound.ends == [{"payments": {0: 5, 1: 7}}, {"refunds": {0: 3}}]
    assert bound.alone


def test_only_sources_that_can_be_asked_are_compared_with_their_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, list[str]]] = []

    def compare(config: ClientConfig, source: KafkaSource, names: list[str], schema: StructType) -> None:
        compared.append((str(config["bootstrap.servers"]), names))

    monkeypatch.setattr(pipeline_topics, "require_fitting_records", compare)
    both = topics(KafkaSource(pattern="p.*", schema=SCHEMA), KafkaSource("refunds", SCHEMA, options=KEY_STORE))
    both.require_fitting_records([{"payments-eu": 3, "payments": 2}, {"refunds": 1}], [COLUMNS, COLUMNS])
    assert compared == [(SERVERS, ["payments", "payments-eu"])]


def test_from_the_beginning_moves_only_sources_that_begin_with_what_comes_next() -> None:
    moment, offsets = datetime(2026, 1, 1, tzinfo=UTC), {"refunds": {"0": -1}}
    moved = from_the_beginning(
        pipeline(
            KafkaSource("payments", SCHEMA),
            KafkaSource("clicks", SCHEMA, starting="earliest"),
            KafkaSource("views", SCHEMA, starting=moment),
            KafkaSource("refunds", SCHEMA, starting=offsets),
        )
    )
    assert [source.starting for source in moved.sources] == ["earliest", "earliest", moment, offsets]


def test_from_the_beginning_leaves_everything_else_as_it_is() -> None:
    made = pipeline(KafkaSource("payments", SCHEMA, metadata="kafka", options={"kafka.a": "b"}), dead_letters="broken")
    moved = from_the_beginning(made)
    assert (moved.name, moved.transform, moved.sink, moved.dead_letters) == ("fraud", same, made.sink, "broken")
    assert (moved.sources[0].metadata, moved.sources[0].options) == ("kafka", {"kafka.a": "b"})
    assert made.sources[0].starting == "latest"
    assert from_the_beginning(moved) == moved


@given(counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 5), min_size=1), data=st.data())
def test_complete_offsets_are_taken_and_incomplete_ones_are_not(counts: dict[str, int], data: st.DataObject) -> None:
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    kept = data.draw(st.sets(st.sampled_from(places), min_size=1))
    starting: dict[str, dict[str, int]] = {}
    for topic, number in kept:
        starting.setdefault(topic, {})[str(number)] = 0
    fake = FakeKafka(counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_topics, "partition_counts", fake.partition_counts)
        patch.setattr(rights, "topic_rights", fake.topic_rights)
        asked = topics(KafkaSource(sorted(counts), SCHEMA, starting=starting))
        if kept == set(places):
            assert asked.sources() == [counts]
        else:
            with pytest.raises(OptionRefused, match="says nothing about"):
                asked.sources()
