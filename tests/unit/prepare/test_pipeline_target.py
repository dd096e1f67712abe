"""A pipeline as a target, with a broker made of a dictionary."""

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
from tailrace.kafka.topics import ClientConfig, TopicFacts
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.prepare import endpoint, pipeline_target
from tailrace.prepare.endpoint import Endpoint
from tailrace.prepare.findings import Findings
from tailrace.prepare.options import RunOptions
from tailrace.prepare.pipeline_target import PipelineTarget, from_the_beginning

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
    created: list[tuple[str, int]] = field(default_factory=list)
    asked_through_spark: list[tuple[dict[str, str], list[str]]] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    rights: dict[str, Rights] = field(default_factory=dict)
    """What the user may do with a topic; everything, where nothing is said."""
    tried: list[str] = field(default_factory=list)
    """The topics whose creation was only tried."""

    def topic_rights(self, config: ClientConfig, topics: Iterable[str]) -> dict[str, Rights]:
        return {topic: self.rights.get(topic, frozenset({"READ", "WRITE"})) for topic in topics}

    def kafka_topic_rights(self, spark: object, options: Mapping[str, str], topics: Iterable[str]) -> dict[str, Rights]:
        assert spark is SPARK
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
        self.created.append((name, partitions))
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

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Answer instead of a broker."""
        for name in ("partition_counts", "list_topics", "create_topic", "create_kafka_topic", "kafka_partitions"):
            patch.setattr(endpoint, name, getattr(self, name))
        for name in ("topic_rights", "kafka_topic_rights", "require_creatable"):
            patch.setattr(endpoint, name, getattr(self, name))
        patch.setattr(endpoint, "visible_ends", self.offsets)
        patch.setattr(pipeline_target, "prelaunch_jvm", lambda *_: None)

    def _note(self, config: ClientConfig) -> None:
        self.addresses.append(str(config["bootstrap.servers"]))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    fake = FakeKafka({"payments": 2, "payments-eu": 3, "refunds": 1, "decisions": 1})
    fake.install(monkeypatch)
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


def target(*sources: KafkaSource, sink: KafkaSink | None = None, options: Any = None, **more: Any) -> PipelineTarget:
    options = options or RunOptions(bootstrap_servers=SERVERS)
    return PipelineTarget(pipeline(*sources, sink=sink, **more), options, private=True)


def looked_up(here: PipelineTarget, findings: Findings | None = None) -> PipelineTarget:
    """Ask everything that needs no Spark."""
    here.look_up(RunOptions(bootstrap_servers=SERVERS), findings or Findings(collect=False))
    return here


def looked_up_by_spark(here: PipelineTarget, findings: Findings | None = None) -> PipelineTarget:
    """Ask the rest."""
    fresh: Any = FakeCheckpoint()
    here.look_up_by(SPARK, findings or Findings(collect=False), fresh)
    return here


class FakeCheckpoint:
    def is_fresh(self) -> bool:
        return True


def partitions(here: PipelineTarget) -> list[Mapping[str, int]]:
    return [source.partitions for source in here._topics.known]


def test_each_source_has_its_own_partitions(kafka: FakeKafka) -> None:
    both = looked_up(target(KafkaSource(["payments", "refunds"], SCHEMA), KafkaSource("payments-eu", SCHEMA)))
    assert partitions(both) == [{"payments": 2, "refunds": 1}, {"payments-eu": 3}]
    assert (both.sources, both.tasks(None), both.tasks(2)) == (2, 6, 4)
    assert set(kafka.addresses) == {SERVERS}


def test_the_owner_has_the_existing_topics_or_the_given_ones(kafka: FakeKafka) -> None:
    several = target(KafkaSource(["refunds", "payments"], SCHEMA), KafkaSource(pattern="payments-.*", schema=SCHEMA))
    assert several.owner.topics == ("payments", "refunds")
    assert looked_up(several).owner.topics == ("payments", "payments-eu", "refunds")


def test_a_missing_topic_is_an_error(kafka: FakeKafka) -> None:
    with pytest.raises(TopicMissing, match="clicks"):
        looked_up(target(KafkaSource("payments", SCHEMA), KafkaSource("clicks", SCHEMA)))


def test_a_pattern_matches_whole_topic_names(kafka: FakeKafka) -> None:
    kafka.topics |= {"old-payments": 9, "payments2": 1}
    here = looked_up(target(KafkaSource(pattern="payments(-.*)?", schema=SCHEMA), KafkaSource("refunds", SCHEMA)))
    assert partitions(here) == [{"payments": 2, "payments-eu": 3}, {"refunds": 1}]


def test_a_pattern_that_matches_no_topic_is_refused(kafka: FakeKafka) -> None:
    with pytest.raises(TopicMissing, match="'clicks-") as refused:
        looked_up(target(KafkaSource(pattern="clicks-.*", schema=SCHEMA)))
    assert "pattern" in refused.value.fix


@pytest.mark.parametrize(
    ("starting", "missing"),
    [
        ({"payments": {"0": 17}}, "payments-1"),
        ({"refunds": {"0": 1, "1": 1}}, "payments-0, payments-1"),
    ],
)
def test_starting_offsets_without_a_partition_are_refused_by_its_name(
    kafka: FakeKafka, starting: dict[str, dict[str, int]], missing: str
) -> None:
    with pytest.raises(OptionRefused) as refused:
        looked_up(target(KafkaSource("payments", SCHEMA, starting=starting)))
    assert refused.value.what.endswith(f"has no offset for {missing}")
    assert "-2" in refused.value.fix


def test_starting_offsets_for_a_pattern_must_be_complete_too(kafka: FakeKafka) -> None:
    source = KafkaSource(pattern="payments.*", schema=SCHEMA, starting={"payments": {"0": 17, "1": 0}})
    with pytest.raises(OptionRefused, match="payments-eu-0, payments-eu-1, payments-eu-2"):
        looked_up(target(source))


@pytest.mark.parametrize(
    "starting", ["latest", "earliest", datetime(2026, 1, 1, tzinfo=UTC), {"payments": {"0": 17, "1": -1}}]
)
def test_other_starting_values_are_left_to_spark(kafka: FakeKafka, starting: Any) -> None:
    assert partitions(looked_up(target(KafkaSource("payments", SCHEMA, starting=starting)))) == [{"payments": 2}]


def test_the_topic_of_the_sink_must_exist(kafka: FakeKafka) -> None:
    looked_up(target())
    with pytest.raises(TopicMissing, match="nowhere"):
        looked_up(target(sink=KafkaSink("nowhere")))
    with pytest.raises(TopicMissing, match="nowhere"):
        looked_up(target(sink=KafkaSink("nowhere", topic_column="target")))


def test_topics_of_a_column_are_not_checked(kafka: FakeKafka) -> None:
    looked_up(target(sink=KafkaSink(topic_column="target")))


def test_the_dead_letter_topic_is_created_and_announced(kafka: FakeKafka) -> None:
    said: list[str] = []
    looked_up_by_spark(target()).create_topics(said.append)
    assert kafka.created == [("fraud.dead-letters", 1)]
    assert said == ["Created the topic fraud.dead-letters for records that cannot be read."]


def test_an_existing_dead_letter_topic_is_unchanged(kafka: FakeKafka) -> None:
    kafka.topics["broken"] = 7
    looked_up_by_spark(target(dead_letters="broken")).create_topics(pytest.fail)
    assert kafka.created == []


def test_a_dead_letter_topic_is_created_without_a_listener_too(kafka: FakeKafka) -> None:
    looked_up_by_spark(target(dead_letters="broken")).create_topics(None)
    assert kafka.created == [("broken", 1)]


@pytest.mark.parametrize("policy", ["drop", "fail"])
def test_without_dead_letters_no_topic_is_created(kafka: FakeKafka, policy: str) -> None:
    looked_up_by_spark(target(malformed=policy)).create_topics(pytest.fail)
    assert kafka.created == []


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
@pytest.mark.parametrize("late", [False, True], ids=["when asked", "when created"])
def test_a_refused_dead_letter_topic_is_an_error_with_fixes(
    kafka: FakeKafka, refusal: KafkaError, options: dict[str, str], late: bool
) -> None:
    here = target(sink=KafkaSink("decisions", options=options))
    if late:
        looked_up_by_spark(here)
    kafka.refusal = refusal
    with pytest.raises(KafkaError) as refused:
        here.create_topics(pytest.fail) if late else looked_up_by_spark(here)
    assert type(refused.value) is type(refusal)
    assert refused.value.what == "the dead-letter topic 'fraud.dead-letters' of pipeline 'fraud' cannot be used"
    assert refused.value.why == (refusal.why or refusal.what)
    assert refused.value.detail == refusal.detail
    assert [fix for fix in ("dead_letters=", "'drop'", "'fail'") if fix not in refused.value.fix] == []


@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_rights_for_dead_letters_are_checked_before_anything_is_created(
    kafka: FakeKafka, options: dict[str, str]
) -> None:
    def ask() -> PipelineTarget:
        return looked_up_by_spark(target(sink=KafkaSink("decisions", options=options)))

    ask()
    assert (kafka.tried, kafka.created) == (["fraud.dead-letters"], [])
    kafka.refusal = NotAuthorized("may not make it", why="Not authorized")
    with pytest.raises(NotAuthorized, match="cannot be used"):
        ask()
    kafka.rights["fraud.dead-letters"], kafka.refusal = frozenset(), None
    with pytest.raises(NotAuthorized, match="cannot be used") as unseen:
        ask()
    assert "WRITE" in unseen.value.why, "it could be created, and not be written to"
    del kafka.rights["fraud.dead-letters"]
    kafka.topics["fraud.dead-letters"] = 1
    ask()
    kafka.rights["fraud.dead-letters"] = frozenset({"DESCRIBE"})
    with pytest.raises(NotAuthorized, match="may not write to topic 'fraud"):
        ask()


@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_topics_without_rights_are_refused(kafka: FakeKafka, options: dict[str, str]) -> None:
    def ask() -> PipelineTarget:
        here = target(KafkaSource("payments", SCHEMA, options=options), sink=KafkaSink("decisions", options=options))
        return looked_up_by_spark(looked_up(here))

    kafka.rights = {"payments": frozenset({"WRITE", "DESCRIBE"})}
    with pytest.raises(NotAuthorized, match="may not read topic 'payments'") as refused:
        ask()
    assert "grants DESCRIBE, WRITE" in refused.value.why
    kafka.rights = {"decisions": frozenset({"READ"})}
    with pytest.raises(NotAuthorized, match="may not write to topic 'decisions'"):
        ask()


@pytest.mark.parametrize("options", [{}, KEY_STORE], ids=["own client", "through Spark"])
def test_outputs_that_may_not_be_read_are_known_with_a_way_out(kafka: FakeKafka, options: dict[str, str]) -> None:
    kafka.topics["fraud.dead-letters"] = 1
    kafka.rights = {"decisions": frozenset({"WRITE", "DESCRIBE"}), "fraud.dead-letters": frozenset({"WRITE", "READ"})}
    here = looked_up_by_spark(looked_up(target(sink=KafkaSink("decisions", options=options))))
    (fix,) = here._unreadable(("decisions", "fraud.dead-letters")).values()
    assert "--operation Read --topic decisions" in fix
    kafka.rights = {"decisions": None}
    assert looked_up(target())._unreadable(("decisions", "unknown")) == {}


def test_outputs_that_a_broker_compacts_are_known(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {"decisions": "compact,delete", "fraud.dead-letters": "delete"}
    kafka.topics["fraud.dead-letters"] = 1
    monkeypatch.setattr(
        endpoint, "topic_facts", lambda _, topic: TopicFacts({"cleanup.policy": policies[topic]}, replicas=1)
    )
    here = target()
    assert here._compacted(("decisions",)) == (), "nothing is asked of a broker that has not responded"
    assert looked_up_by_spark(looked_up(here))._compacted(("decisions", "fraud.dead-letters")) == ("decisions",)


def test_rights_that_the_broker_does_not_report_are_unknown(kafka: FakeKafka) -> None:
    kafka.rights = {"payments": None, "decisions": None}
    here = looked_up(target(KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA)))
    assert here.rights_unknown == {"payments", "decisions"}


def test_a_check_collects_errors_and_continues(kafka: FakeKafka) -> None:
    findings = Findings(collect=True)
    here = looked_up(target(KafkaSource("clicks", SCHEMA), sink=KafkaSink("nowhere")), findings)
    assert [finding.code for finding in findings.errors] == ["TOPIC_MISSING", "TOPIC_MISSING"]
    assert here.tasks(None) is None
    looked_up_by_spark(here, findings)
    assert kafka.tried == ["fraud.dead-letters"]


def test_a_check_waits_once_for_an_unreachable_broker(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def silent(*_: object) -> None:
        asked.append(1)
        raise BrokerUnreachable("no answer")

    monkeypatch.setattr(endpoint, "partition_counts", silent)
    findings = Findings(collect=True)
    looked_up_by_spark(looked_up(target(), findings), findings)
    assert len(asked) == 1
    assert [finding.code for finding in findings.errors] == ["BROKER_UNREACHABLE"]


def test_behind_a_java_key_store_the_sources_wait_for_spark(kafka: FakeKafka) -> None:
    one_of_two = looked_up(
        target(KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA, options=KEY_STORE), malformed="drop")
    )
    assert one_of_two.tasks(None) is None
    assert partitions(looked_up_by_spark(one_of_two)) == [{"payments": 2}, {"refunds": 1}]
    asked = KEY_STORE | {"subscribe": "refunds", "kafka.bootstrap.servers": SERVERS}
    assert kafka.asked_through_spark == [(asked, ["refunds"])]


def test_behind_a_java_key_store_the_sink_waits_for_spark(kafka: FakeKafka) -> None:
    here = looked_up(target(sink=KafkaSink("nowhere", options=KEY_STORE)))
    with pytest.raises(TopicMissing, match="nowhere"):
        looked_up_by_spark(here)


def test_behind_a_java_key_store_a_pattern_is_refused(kafka: FakeKafka) -> None:
    here = looked_up(target(KafkaSource(pattern="pay.*", schema=SCHEMA, options=KEY_STORE)))
    with pytest.raises(OptionRefused, match="cannot be listed"):
        looked_up_by_spark(here)


def test_behind_a_java_key_store_spark_creates_the_dead_letter_topic(kafka: FakeKafka) -> None:
    said: list[str] = []
    behind = KafkaSink("decisions", options=KEY_STORE)
    looked_up_by_spark(target(sink=behind)).create_topics(said.append)
    assert len(said) == 1
    assert kafka.topics["fraud.dead-letters"] == 1
    looked_up_by_spark(target(sink=behind)).create_topics(pytest.fail)


def test_only_reachable_sources_are_compared_with_their_schema(
    kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[str, list[str]]] = []

    def compare(config: ClientConfig, source: KafkaSource, names: list[str], schema: StructType) -> None:
        compared.append((str(config["bootstrap.servers"]), names))

    monkeypatch.setattr(pipeline_target, "require_fitting_records", compare)
    monkeypatch.setattr(pipeline_target, "record_schema", lambda _: COLUMNS)
    both = [KafkaSource(pattern="p.*", schema=SCHEMA), KafkaSource("refunds", SCHEMA, options=KEY_STORE)]
    options = RunOptions(bootstrap_servers=SERVERS)
    looked_up_by_spark(looked_up(PipelineTarget(pipeline(*both), options)))
    assert compared == [(SERVERS, ["payments", "payments-eu"])]
    looked_up_by_spark(looked_up(target(*both)))
    assert len(compared) == 1, "a test's topics hold records that fit no schema on purpose"


def test_the_sink_topic_is_described_once(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    monkeypatch.setattr(endpoint, "topic_facts", lambda _, topic: described.append(topic) or TopicFacts({}, 3, 1_000))
    here = target()
    assert [here.sink_facts().max_message_bytes for _ in range(2)] == [1_000, 1_000]
    assert described == ["decisions"]


def test_options_are_compared_without_case() -> None:
    assert Endpoint.of({"Kafka.Bootstrap.Servers": SERVERS, "Subscribe": "a"}).options == {
        "kafka.bootstrap.servers": SERVERS,
        "subscribe": "a",
    }


def test_from_the_beginning_changes_only_sources_that_start_at_latest() -> None:
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


def test_from_the_beginning_changes_nothing_else() -> None:
    original = pipeline(
        KafkaSource("payments", SCHEMA, metadata="kafka", options={"kafka.a": "b"}), dead_letters="broken"
    )
    moved = from_the_beginning(original)
    assert (moved.name, moved.transform, moved.sink, moved.dead_letters) == ("fraud", same, original.sink, "broken")
    assert (moved.sources[0].metadata, moved.sources[0].options) == ("kafka", {"kafka.a": "b"})
    assert original.sources[0].starting == "latest"
    assert from_the_beginning(moved) == moved


@given(counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 5), min_size=1), data=st.data())
def test_complete_offsets_are_accepted_and_incomplete_ones_refused(counts: dict[str, int], data: st.DataObject) -> None:
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    kept = data.draw(st.sets(st.sampled_from(places), min_size=1))
    starting: dict[str, dict[str, int]] = {}
    for topic, number in kept:
        starting.setdefault(topic, {})[str(number)] = 0
    fake = FakeKafka(counts | {"decisions": 1})
    with pytest.MonkeyPatch.context() as patch:
        fake.install(patch)
        here = target(KafkaSource(sorted(counts), SCHEMA, starting=starting))
        if kept == set(places):
            assert partitions(looked_up(here)) == [counts]
        else:
            with pytest.raises(OptionRefused, match="has no offset for"):
                looked_up(here)
