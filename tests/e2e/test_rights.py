"""Connections, logins and permissions at a broker with TLS, SCRAM and ACLs: each error names what is missing.

Modes and clients are combined, half of the combinations in `make test` (`combined.py`) and all in `make soak-watch`.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from combined import MODES, combined
from confluent_kafka.admin import AdminClient
from conftest import consumers_of_tasks, of_sparks_env, suspended, wait_until
from guards import Guards
from py4j.protocol import Py4JJavaError
from secured_broker import PASSWORD, PLAIN_USER, SecuredKafka, secured_kafka

import tailrace as tr
from tailrace.dead_letters.queue import open_queue
from tailrace.dead_letters.selection import Selection
from tailrace.dead_letters.to_source import ToSource
from tailrace.engine import SparkBrokerPing
from tailrace.engine import topics as engine_topics
from tailrace.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    DeliveryRefused,
    KafkaError,
    NotAuthorized,
    TlsFailed,
    TopicMissing,
)
from tailrace.kafka import reachable, rights
from tailrace.kafka.client import client_config
from tailrace.kafka.reachable import BrokerPing
from tailrace.kafka.records import NewRecord, RecordSender, read_records, send_records
from tailrace.kafka.topics import create_topic, list_topics, topic_id
from tailrace.prepare import endpoint
from tailrace.prepare.endpoint import JOINS_GROUP
from tailrace.prepare.options import RunOptions
from tailrace.running import broker_watch
from tailrace.running.run import run_query

SCHEMA = "id long"
CONF = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
EVERYTHING = (("READ", "source"), ("WRITE", "sink"), ("WRITE", "dead"), ("CREATE", "dead"))
CLIENTS = ("own client", "through Spark")
GROUP_OPTIONS = ("groupIdPrefix", "kafka.group.id")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Case:
    """A pipeline, and a user with some of the permissions that it needs."""

    def __init__(self, kafka: SecuredKafka, rights: tuple[tuple[str, str], ...] = EVERYTHING) -> None:
        self.kafka = kafka
        self.user = kafka.user()
        self.name = f"rights-{secrets.token_hex(4)}"
        self.source, self.sink = kafka.topic("source", 2), kafka.topic("sink", 1)
        self.dead = f"{self.name}.dead-letters"
        for operation, topic in rights:
            kafka.grant(self.user, operation, getattr(self, topic))

    def options(self, client: str = "own client", **more: str) -> dict[str, str]:
        how = self.kafka.options if client == "own client" else self.kafka.options_for_java
        return how(self.user, **more)

    def pipeline(self, options: Mapping[str, str] | None = None, **more: Any) -> tr.Pipeline:
        given = self.options() if options is None else options
        source = tr.KafkaSource(self.source, SCHEMA, starting="earliest", options=given)
        return tr.Pipeline(self.name, source, lambda rows: rows, tr.KafkaSink(self.sink, options=given), **more)

    def check(self, pipeline: tr.Pipeline, **more: Any) -> dict[str, Any]:
        """What a check finds against it, by code."""
        report = tr.check(pipeline, bootstrap_servers=self.kafka.secured_servers, **more)
        return {finding.code: finding for finding in report.findings if finding.severity == "error"}

    def start(self, pipeline: tr.Pipeline, mode: str, **conf: str) -> Any:
        servers = self.kafka.secured_servers
        return tr.start(pipeline, mode, bootstrap_servers=servers, conf=CONF | conf, checkpoint_every="1s")

    def require_refused(
        self, pipeline: tr.Pipeline, kind: type[KafkaError], *words: str, mode: str = "microbatch", **conf: str
    ) -> None:
        """The check says what the start then says, too."""
        before = set(list_topics(self.kafka.config))
        findings = self.check(pipeline, mode=mode, conf=conf)
        assert set(findings) == {kind.code}, findings
        with pytest.raises(kind) as refused:
            self.start(pipeline, mode, **conf)
        assert set(list_topics(self.kafka.config)) == before, "no topic is created"
        for text in (findings[kind.code].title + findings[kind.code].why + findings[kind.code].fix, str(refused.value)):
            assert [word for word in words if word not in text] == [], text
            assert PASSWORD not in text
            assert "tailrace broker start" not in text


def test_a_wrong_password(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    wrong = case.pipeline(kafka.options(case.user, password="wrong"))
    case.require_refused(wrong, AuthenticationFailed, case.user, "sasl.jaas.config", "invalid credentials")


def test_an_unknown_user(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    case.require_refused(case.pipeline(kafka.options("nobody")), AuthenticationFailed, "nobody")


def test_a_client_without_tls(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    case.require_refused(case.pipeline({}), TlsFailed, "kafka.security.protocol", "SASL_SSL")


def test_a_client_without_a_login(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    options = case.options() | {"kafka.security.protocol": "SSL"}
    del options["kafka.sasl.jaas.config"]
    case.require_refused(case.pipeline(options), AuthenticationFailed, "kafka.sasl.jaas.config")


def test_a_certificate_of_a_stranger(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    case.require_refused(case.pipeline(case.options(ca="stranger.pem")), TlsFailed, "certificate", "truststore")


def test_tls_at_a_port_without(kafka: SecuredKafka) -> None:
    config = client_config(kafka.bootstrap_servers, kafka.options("nobody"))
    assert config is not None
    with pytest.raises(TlsFailed, match="use the TLS port"):
        list_topics(config)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"password": "wrong"}, AuthenticationFailed),
        ({"store": "stranger.p12"}, TlsFailed),
        ({"store": "stranger.jks"}, TlsFailed),
    ],
    ids=["wrong password", "certificate of a stranger", "certificate of a stranger in a JKS store"],
)
def test_the_errors_are_the_same_with_a_java_keystore(
    spark: Any, kafka: SecuredKafka, options: dict[str, str], kind: type[KafkaError]
) -> None:
    case = Case(kafka)
    case.require_refused(case.pipeline(case.options("through Spark", **options)), kind)


@pytest.mark.parametrize(("client", "operation", "mode"), combined(CLIENTS, ["READ", "WRITE"], MODES))
def test_a_right_that_is_missing(spark: Any, kafka: SecuredKafka, client: str, operation: str, mode: str) -> None:
    missing = next(right for right in EVERYTHING if right[0] == operation)
    case = Case(kafka, tuple(right for right in EVERYTHING if right != missing))
    name = getattr(case, missing[1])
    kafka.grant(case.user, "DESCRIBE", name)
    words = (f"user {case.user!r} may not", repr(name), f"--operation {operation.capitalize()} --topic {name}")
    case.require_refused(case.pipeline(case.options(client)), NotAuthorized, *words, mode=mode)


@pytest.mark.parametrize(("operation", "topic"), EVERYTHING[:2])
def test_a_right_that_a_users_own_writer_lacks(
    spark: Any, kafka: SecuredKafka, operation: str, topic: str, mode: str, tmp_path: Path
) -> None:
    case = Case(kafka, tuple(right for right in EVERYTHING[:2] if right != (operation, topic)))
    kafka.grant(case.user, "DESCRIBE", getattr(case, topic))
    options = case.options() | {"kafka.bootstrap.servers": kafka.secured_servers}
    records = spark.readStream.format("kafka").options(**options, subscribe=case.source).load()
    writer = (
        records.select("value").writeStream.format("kafka").options(**options, topic=case.sink).queryName(case.name)
    )
    (finding,) = [each for each in tr.check(writer, mode).findings if each.severity == "error"]
    with pytest.raises(NotAuthorized) as refused:
        tr.start(writer, mode, checkpoint=tmp_path / "checkpoint")
    for text in (finding.title + finding.why + finding.fix, str(refused.value)):
        assert f"user {case.user!r} may not" in text
        assert f"--operation {operation.capitalize()} --topic {getattr(case, topic)}" in text


@pytest.mark.parametrize("client", CLIENTS)
def test_no_right_to_create_the_dead_letter_topic(spark: Any, kafka: SecuredKafka, client: str) -> None:
    case = Case(kafka, EVERYTHING[:3])
    case.require_refused(case.pipeline(case.options(client)), NotAuthorized, case.dead, "malformed='drop'")
    assert case.check(case.pipeline(case.options(client), malformed="drop")) == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dead_letter_topic_that_can_be_created_but_not_written_is_refused(
    spark: Any, kafka: SecuredKafka, client: str
) -> None:
    case = Case(kafka, (*EVERYTHING[:2], EVERYTHING[3]))
    case.require_refused(case.pipeline(case.options(client)), NotAuthorized, case.dead, "WRITE")


@pytest.mark.parametrize("client", CLIENTS)
def test_no_right_to_write_to_the_dead_letter_topic(spark: Any, kafka: SecuredKafka, client: str) -> None:
    case = Case(kafka, EVERYTHING[:2])
    dead = kafka.topic("dead", 1)
    kafka.grant(case.user, "DESCRIBE", dead)
    here = case.pipeline(case.options(client), dead_letters=dead)
    case.require_refused(here, NotAuthorized, "may not write to", dead)


@pytest.mark.parametrize(("client", "topic"), combined(CLIENTS, ["source", "sink"]))
def test_a_hidden_topic_is_missing_with_the_permission_to_see_it(
    spark: Any, kafka: SecuredKafka, client: str, topic: str
) -> None:
    case = Case(kafka, tuple(right for right in EVERYTHING if right[1] != topic))
    words = (getattr(case, topic), f"user {case.user!r} may not see it", "DESCRIBE")
    case.require_refused(case.pipeline(case.options(client)), TopicMissing, *words)


def test_looking_for_a_missing_topic_does_not_create_it(kafka: SecuredKafka) -> None:
    plain = client_config(kafka.bootstrap_servers, {})
    assert plain is not None
    with pytest.raises(TopicMissing) as refused:
        send_records(plain, "nowhere", [b"1"])
    assert "may not see" not in str(refused.value)
    assert "nowhere" not in AdminClient(kafka.config).list_topics(timeout=10).topics


@pytest.mark.parametrize(("client", "option"), combined(CLIENTS, GROUP_OPTIONS))
def test_a_group_is_joined_only_with_the_offset_fetching_of_old(
    spark: Any, kafka: SecuredKafka, client: str, option: str
) -> None:
    case = Case(kafka)
    group = f"{case.name}-readers"
    source = tr.KafkaSource(case.source, SCHEMA, options=case.options(client) | {option: group})
    here = replace(case.pipeline(case.options(client), malformed="drop"), source=source)
    assert case.check(here, mode="microbatch") == {}
    old: dict[str, str] = {JOINS_GROUP: "true"}
    words = (f"may not read group '{group}", f"--group {group}")
    case.require_refused(here, NotAuthorized, *words, **old)
    kafka.grant(case.user, "READ", group, group=True)
    assert case.check(here, mode="microbatch", conf=old) == {}
    kafka.send(case.source, [{"id": 1}])
    with case.start(replace(here, source=replace(source, starting="earliest")), "microbatch", **old):
        assert len(kafka.receive_count(case.sink, 1)) == 1


@pytest.mark.parametrize(("client", "option", "mode"), combined(CLIENTS, GROUP_OPTIONS, MODES))
def test_a_named_group_needs_no_right(spark: Any, kafka: SecuredKafka, mode: str, client: str, option: str) -> None:
    """The tasks assign partitions to themselves and commit nothing."""
    case = Case(kafka)
    options = case.options(client) | {option: f"{case.name}-readers"}
    source = tr.KafkaSource(case.source, SCHEMA, starting="earliest", options=options)
    here = replace(case.pipeline(case.options(client)), source=source)
    assert case.check(here, mode=mode) == {}
    kafka.send(case.source, [{"id": 1}])
    tr.run(here, mode, bootstrap_servers=kafka.secured_servers, conf=CONF, once=True)
    assert len(kafka.receive_count(case.sink, 1)) == 1


def silence_rights(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let the broker not respond to questions about permissions; return what was asked."""
    asked: list[object] = []

    @contextmanager
    def connected(config: Mapping[str, str | int]) -> Iterator[AdminClient]:
        with original(config) as admin, suspended(kafka):
            asked.append(config)
            yield admin

    def silenced(through_spark: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*question: object) -> Any:
            asked.append(question)
            with suspended(kafka):
                return through_spark(*question)

        return ask

    original = rights._connected_admin
    monkeypatch.setattr(rights, "_connected_admin", connected)
    for name in ("kafka_topic_rights", "kafka_group_rights"):
        monkeypatch.setattr(endpoint, name, silenced(getattr(endpoint, name)))
    monkeypatch.setattr(rights, "ASK_TIMEOUT_S", 1.0)  # it connects within this time, too
    monkeypatch.setattr(engine_topics, "ASK_TIMEOUT_S", 0.3)
    return asked


@pytest.mark.parametrize(("client", "mode"), combined(CLIENTS, MODES))
def test_rights_that_the_broker_does_not_report_are_unknown(
    spark: Any, kafka: SecuredKafka, mode: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It responds, but not to that question; the start goes on."""
    asked = silence_rights(kafka, monkeypatch)
    case = Case(kafka)
    here = case.pipeline(case.options(client), malformed="drop")
    report = tr.check(here, mode, bootstrap_servers=kafka.secured_servers)
    (finding,) = [each for each in report.findings if each.code == "RIGHTS_UNKNOWN"]
    assert asked
    assert case.source in finding.title + finding.why
    assert case.sink in finding.title + finding.why
    kafka.send(case.source, [{"id": 1}])
    with case.start(here, mode) as running:
        assert "RIGHTS_UNKNOWN" in {each.code for each in running.report.findings}
        assert len(kafka.receive_count(case.sink, 1)) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_rights_to_a_group_that_the_broker_does_not_report_are_unknown(
    spark: Any, kafka: SecuredKafka, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence_rights(kafka, monkeypatch)
    case = Case(kafka)
    group = f"{case.name}-readers"
    source = tr.KafkaSource(case.source, SCHEMA, options=case.options(client) | {"kafka.group.id": group})
    here = replace(case.pipeline(case.options(client), malformed="drop"), source=source)
    old = {JOINS_GROUP: "true"}
    report = tr.check(here, "microbatch", bootstrap_servers=kafka.secured_servers, conf=old)
    assert [each.code for each in report.findings if each.severity == "error"] == []
    (finding,) = [each for each in report.findings if each.code == "RIGHTS_UNKNOWN"]
    assert group in finding.title + finding.why


@pytest.mark.parametrize(("client", "mode"), combined(CLIENTS, MODES, odd=True))
def test_a_plain_login(spark: Any, kafka: SecuredKafka, mode: str, client: str) -> None:
    case = Case(kafka)
    case.user = PLAIN_USER
    wrong = case.pipeline(case.options(client, password="wrong"), malformed="drop")
    case.require_refused(wrong, AuthenticationFailed, mode=mode)
    here = case.pipeline(case.options(client), malformed="drop")
    case.require_refused(here, TopicMissing, f"user {PLAIN_USER!r} may not see it", mode=mode)
    for operation, topic in EVERYTHING[:2]:
        kafka.grant(PLAIN_USER, operation, getattr(case, topic))
    assert case.check(here, mode=mode) == {}
    kafka.send(case.source, [{"id": 1}])
    tr.run(here, mode, bootstrap_servers=kafka.secured_servers, conf=CONF, once=True)
    assert len(kafka.receive_count(case.sink, 1)) == 1


def test_a_jks_trust_store(spark: Any, kafka: SecuredKafka, mode: str) -> None:
    case = Case(kafka)
    here = case.pipeline(case.options("through Spark", store="broker.jks"))
    assert case.check(here, mode=mode) == {}
    kafka.send(case.source, [{"id": 1}])
    tr.run(here, mode, bootstrap_servers=kafka.secured_servers, conf=CONF, once=True)
    assert len(kafka.receive_count(case.sink, 1)) == 1


@pytest.mark.parametrize(("client", "mode"), combined(CLIENTS, MODES))
def test_with_every_right_it_runs_and_without_any_right_to_a_group(
    spark: Any, kafka: SecuredKafka, mode: str, client: str
) -> None:
    case = Case(kafka)
    here = case.pipeline(case.options(client))
    kafka.send(case.source, [{"id": 1}, {"id": 2}, b"no json"])
    assert case.check(here, mode=mode) == {}
    with case.start(here, mode):
        received = kafka.receive_count(case.sink, 2)
        assert sorted(value["id"] for _, value in received) == [1, 2]
        wait_until(lambda: _count(kafka, case.dead) == 1, 30, "the dead letter is there")


def _count(kafka: SecuredKafka, topic: str) -> int:
    return len(list(read_records(kafka.config, topic)))


def test_a_bounded_run_needs_no_right_to_a_group(spark: Any, kafka: SecuredKafka, mode: str) -> None:
    case = Case(kafka)
    kafka.send(case.source, [{"id": 1}, {"id": 2}])
    tr.run(case.pipeline(), mode, bootstrap_servers=kafka.secured_servers, conf=CONF, once=True)
    assert len(kafka.receive_count(case.sink, 2)) == 2


def test_a_right_that_is_taken_away_ends_the_query_with_what_is_missing(
    spark: Any, kafka: SecuredKafka, mode: str
) -> None:
    case = Case(kafka)
    kafka.send(case.source, [{"id": 1}])
    running = case.start(case.pipeline(), mode)
    try:
        kafka.receive_count(case.sink, 1)
        kafka.revoke(case.user, case.sink)
        kafka.send_to_every_partition(case.source, [{"id": 2}, {"id": 3}])
        with pytest.raises(NotAuthorized) as ended:
            running.wait(60)
        assert case.sink in ended.value.why
        assert case.name in ended.value.what
    finally:
        running.stop()


def test_records_by_hand_are_refused_by_the_right_that_is_missing(kafka: SecuredKafka) -> None:
    case = Case(kafka)
    config = client_config(kafka.secured_servers, case.options())
    assert config is not None
    with pytest.raises(NotAuthorized, match="may not write to"):
        send_records(config, case.source, [b"1"])
    with pytest.raises(NotAuthorized, match="may not read"):
        list(read_records(config, case.sink, count=1))
    kafka.send(case.source, [{"id": 1}])
    assert len(list(read_records(config, case.source))) == 1, "no right to a group is needed"


def test_an_outage_of_brokers_that_only_spark_can_reach_is_logged(
    spark: Any, kafka: SecuredKafka, mode: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_topics, "ANSWER_TIMEOUT_S", 2.0)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.2)
    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.2)
    case = Case(kafka)
    address = kafka.secured_servers

    def messages() -> list[str]:
        said = (record.getMessage() for record in caplog.records if record.name == "tailrace")
        return [line for line in said if address in line]

    with case.start(case.pipeline(case.options("through Spark"), malformed="drop"), mode):
        kafka.send(case.source, [{"id": 1}])
        kafka.receive_count(case.sink, 1)
        assert messages() == []
        with suspended(kafka):
            wait_until(lambda: len(messages()) == 1, 30, "the outage is logged")
        wait_until(lambda: len(messages()) == 2, 30, "its end is logged")
        kafka.send(case.source, [{"id": 2}])
        kafka.receive_count(case.sink, 2)
    gone, back = messages()
    assert gone == f"query {case.name!r}: no Kafka broker responds at {address}"
    assert f"the Kafka broker at {address} responds again after" in back


def test_dead_letters_are_read_and_replayed_with_the_login_of_the_sink(kafka: SecuredKafka) -> None:
    case = Case(kafka, (("WRITE", "sink"),))
    create_topic(kafka.config, case.dead, 1)
    headers = {"topic": case.source, "partition": 0, "offset": 0, "event_time": 0, "reason": "not_json", "error": ""}
    headers |= {"pipeline": case.name, "time": 0, "attempt": 1}
    sender = RecordSender(kafka.config)
    sender.send(NewRecord(case.dead, b"x", None, tuple((f"tailrace.{k}", str(v).encode()) for k, v in headers.items())))
    sender.finish()
    with pytest.raises(TopicMissing, match="may not see it"):
        open_queue(case.pipeline(), kafka.secured_servers)
    kafka.grant(case.user, "WRITE", case.dead)
    queue = open_queue(case.pipeline(), kafka.secured_servers)
    with pytest.raises(NotAuthorized, match="may not read"):
        list(queue.letters(Selection()))
    kafka.grant(case.user, "READ", case.dead)
    (letter,) = queue.letters(Selection())
    assert queue.topic_id() == topic_id(kafka.config, case.dead)
    kafka.grant(case.user, "READ", case.source)
    with pytest.raises(NotAuthorized, match="may not write to"):
        ToSource(queue.config).replay([letter], lambda _: None)
    kafka.grant(case.user, "WRITE", case.source)
    ToSource(queue.config).replay([letter], lambda _: None)
    (sent,) = read_records(kafka.config, case.source)
    assert (sent.value, sent.headers) == (b"x", letter.record.headers)


def test_outputs_that_this_user_may_write_and_not_read_are_unknown(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka, (("WRITE", "sink"),))
    kafka.send(case.sink, [b"a"])
    login = {name.removeprefix("kafka."): value for name, value in case.options().items()}
    guards = Guards(spark, {**login, "bootstrap.servers": kafka.secured_servers})
    with pytest.raises(Py4JJavaError) as failed:
        guards.read("q", {case.sink: {0: 0}})
    refused = failed.value.java_exception
    assert (refused.topic(), refused.why()) == (case.sink, "this user has no right to read it")
    kafka.grant(case.user, "READ", case.sink)
    assert guards.read("q", {case.sink: {0: 0}}).size() == 0


def test_without_the_right_to_read_outputs_they_may_be_repeated(spark: Any, kafka: SecuredKafka, mode: str) -> None:
    case = Case(kafka)
    why = f"may not read the output topic {case.sink}"
    report = tr.check(case.pipeline(), mode, bootstrap_servers=kafka.secured_servers)
    assert report.delivery is not None
    assert why in report.delivery.in_words
    with pytest.raises(DeliveryRefused, match=why):
        tr.start(case.pipeline(), mode, bootstrap_servers=kafka.secured_servers, delivery="effectively-once")
    kafka.send(case.source, [{"id": 1}])
    spoken: list[str] = []
    options = RunOptions(mode, bootstrap_servers=kafka.secured_servers, once=True)  # type: ignore[arg-type]
    run_query(case.pipeline(), options, announce=spoken.append)
    assert [why in line for line in spoken if line.startswith("Delivery is at-least-once")] == [True]
    kafka.receive_count(case.sink, 1)


def test_an_absent_broker_is_reported_as_unreachable(spark: Any, kafka: SecuredKafka) -> None:
    case = Case(kafka)
    with pytest.raises(BrokerUnreachable):
        tr.start(case.pipeline(), "microbatch", bootstrap_servers="127.0.0.1:1")


def test_a_ping_tells_a_refused_login_from_no_answer(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the second ping, for which librdkafka reports the same error no more."""
    user = kafka.user()
    config = client_config(kafka.secured_servers, kafka.options(user))
    assert config is not None
    assert BrokerPing(config).ask() is None
    monkeypatch.setattr(reachable, "ANSWER_TIMEOUT_S", 2.0)  # a ping with a refused login takes all of it
    ping = BrokerPing(config | {"sasl.password": "wrong"})
    assert [type(ping.ask()) for _ in range(2)] == [AuthenticationFailed] * 2


def test_a_ping_through_spark_tells_a_refused_login_from_no_answer(
    spark: Any, kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And notices when the login is accepted."""
    user = kafka.user()
    options = {"kafka.bootstrap.servers": kafka.secured_servers} | kafka.options_for_java(user, password="new")
    with closing(SparkBrokerPing(spark, options)) as ping:
        assert [type(ping.ask()) for _ in range(2)] == [AuthenticationFailed] * 2
        kafka.set_password(user, "new")
        wait_until(lambda: ping.ask() is None, 30, "the broker accepts the new password")
    options["kafka.bootstrap.servers"] = "127.0.0.1:1"
    monkeypatch.setattr(engine_topics, "ANSWER_TIMEOUT_S", 1.0)
    with closing(SparkBrokerPing(spark, options)) as ping:
        assert isinstance(ping.ask(), BrokerUnreachable)


class Tokens:
    """Delegation tokens of a user for the secured broker, obtained and kept as Spark does on a cluster with Hadoop."""

    def __init__(self, spark: Any, kafka: SecuredKafka, user: str) -> None:
        self._spark, self._jvm = spark, spark._jvm
        self._conf = of_sparks_env(spark.sparkContext, "conf")
        store = {"type": "PKCS12", "location": str(kafka.folder / "broker.p12"), "password": PASSWORD}
        login = kafka.options(user)
        settings = {
            "auth.bootstrap.servers": kafka.secured_servers,
            "target.bootstrap.servers.regex": kafka.secured_servers,
            "security.protocol": "SASL_SSL",
            "sasl.token.mechanism": login["kafka.sasl.mechanism"],
            **{f"ssl.truststore.{key}": value for key, value in store.items()},
            **{key: login[key] for key in ("kafka.sasl.mechanism", "kafka.sasl.jaas.config")},
        }
        self._settings = {f"spark.kafka.clusters.tests.{key}": value for key, value in settings.items()}

    def __enter__(self) -> Self:
        users = self._jvm.org.apache.hadoop.security.UserGroupInformation
        self._before = users.getLoginUser()
        users.setLoginUser(users.createRemoteUser(self._before.getUserName()))
        for key, value in self._settings.items():
            self._conf.set(key, value)
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.org.apache.hadoop.security.UserGroupInformation.setLoginUser(self._before)
        for key in self._settings:
            self._conf.remove(key)

    def obtain(self, options: Mapping[str, str]) -> None:
        """Let Spark have a new token instead of the one before, and wait until the broker accepts it."""
        spark = self._jvm.org.apache.spark.kafka010
        cluster = spark.KafkaTokenSparkConf.getClusterConfig(self._conf, "tests")
        token = spark.KafkaTokenUtil.obtainToken(self._conf, cluster)._1()
        self._jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addToken(token)
        with closing(SparkBrokerPing(self._spark, options)) as ping:
            wait_until(lambda: ping.ask() is None, 30, "the broker knows the token")


def test_a_delegation_token(spark: Any, kafka: SecuredKafka, tmp_path: Path) -> None:
    """The check, the readers of shared tasks and the sink log in with it; a renewed one replaces the consumers."""
    case = Case(kafka)
    source = kafka.topic("source", 4)
    kafka.grant(case.user, "READ", source)
    login = ("kafka.sasl.jaas.config", "kafka.sasl.mechanism")
    options = {key: value for key, value in case.options("through Spark").items() if key not in login}
    options["kafka.bootstrap.servers"] = kafka.secured_servers
    reads = {"subscribe": source, "startingOffsets": "earliest", "groupIdPrefix": source}
    rows = spark.readStream.format("kafka").options(**options, **reads).load()
    writer = rows.select("value").writeStream.format("kafka").queryName(case.name).options(**options, topic=case.sink)
    with pytest.raises(AuthenticationFailed):
        tr.start(writer, checkpoint=tmp_path / "c")
    with Tokens(spark, kafka, case.user) as tokens:
        tokens.obtain(options)
        with tr.start(writer, checkpoint=tmp_path / "c", tasks=2) as running:
            kafka.send_to_every_partition(source, [{"id": n} for n in range(8)])
            kafka.receive_count(case.sink, 8)
            first = consumers_of_tasks(spark, source)
            running.checkpoint()
            kafka.send_to_every_partition(source, [{"id": n} for n in range(8, 16)])
            kafka.receive_count(case.sink, 16)
            assert consumers_of_tasks(spark, source) == first
            tokens.obtain(options)
            running.checkpoint()
            kafka.send_to_every_partition(source, [{"id": n} for n in range(16, 24)])
            received = kafka.receive_count(case.sink, 24)
            assert len(first) == len(consumers_of_tasks(spark, source)) == 2
            assert not first & consumers_of_tasks(spark, source)
    assert sorted(value["id"] for _, value in received) == [*range(24)]
