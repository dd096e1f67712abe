import string

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tailrace.kafka.client import client_config

SERVERS = "127.0.0.1:9092"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_without_options_only_the_address_is_needed() -> None:
    config = client_config(SERVERS, {})
    assert config is not None
    assert config["bootstrap.servers"] == SERVERS
    own = {"log_level", "reconnect.backoff.ms", "socket.connection.setup.timeout.ms"}
    assert set(config) == {"bootstrap.servers"} | own


def test_client_options_are_passed_without_sparks_own() -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f"{PLAIN} username=ann password=secret;",
        "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.max.poll.records": "10",
        "maxOffsetsPerTrigger": "5",
        "security.protocol": "PLAINTEXT",
    }
    config = client_config(SERVERS, options)
    assert config is not None
    assert config["security.protocol"] == "SASL_SSL"
    assert config["sasl.mechanism"] == "PLAIN"
    assert config["client.dns.lookup"] == "use_all_dns_ips"
    assert not {"max.poll.records", "maxOffsetsPerTrigger"} & config.keys()


@pytest.mark.parametrize(
    "jaas",
    [
        f'{PLAIN} username="ann" password="s3;cr et";',
        f"{PLAIN} password='s3;cr et' username='ann';",
        f'{PLAIN}\n  username = "ann"\n  password = "s3;cr et";',
    ],
)
def test_a_jaas_string_becomes_user_and_password(jaas: str) -> None:
    config = client_config(SERVERS, {"kafka.sasl.jaas.config": jaas})
    assert config is not None
    assert (config["sasl.username"], config["sasl.password"]) == ("ann", "s3;cr et")
    assert "sasl.jaas.config" not in config


def test_a_jaas_string_without_quotes() -> None:
    config = client_config(SERVERS, {"kafka.sasl.jaas.config": f"{PLAIN} username=ann password=secret;"})
    assert config is not None
    assert (config["sasl.username"], config["sasl.password"]) == ("ann", "secret")


@given(password=st.text(string.ascii_letters + string.digits + " ;=#!$", min_size=1))
def test_a_quoted_password_is_unchanged(password: str) -> None:
    config = client_config(SERVERS, {"kafka.sasl.jaas.config": f'{PLAIN} username="ann" password="{password}";'})
    assert config is not None
    assert config["sasl.password"] == password


@pytest.mark.parametrize(
    ("written", "password"),
    [('"secret\'"', "secret'"), (r'"a\"b"', 'a"b'), (r'"a\\b"', r"a\b")],
)
def test_quotes_and_escapes_inside_a_password_are_read_as_java_reads_them(written: str, password: str) -> None:
    config = client_config(SERVERS, {"kafka.sasl.jaas.config": f'{PLAIN} username="ann" password={written};'})
    assert config is not None
    assert config["sasl.password"] == password


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required keyTab='x';"},
        {"kafka.sasl.jaas.config": f'{PLAIN} username="ann";'},
        {"kafka.ssl.truststore.location": "/certs/trust.jks"},
        {"kafka.ssl.truststore.location": "/certs/trust.p12", "kafka.ssl.truststore.type": "PKCS12"},
        {
            "kafka.ssl.truststore.location": "/certs/ca.pem",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.keystore.location": "/certs/me.jks",
        },
    ],
)
def test_java_key_stores_are_not_translated(options: dict[str, str]) -> None:
    assert client_config(SERVERS, options) is None


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_a_login_that_only_spark_has_is_not_translated(protocol: str) -> None:
    """A delegation token, or Java's own login configuration."""
    assert client_config(SERVERS, {"kafka.security.protocol": protocol}) is None


def test_pem_stores_get_librdkafkas_names() -> None:
    config = client_config(
        SERVERS,
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "pem",
            "kafka.ssl.truststore.location": "/certs/ca.pem",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": "/certs/me.pem",
            "kafka.ssl.key.password": "k3y",
        },
    )
    assert config is not None
    assert config["ssl.ca.location"] == "/certs/ca.pem"
    assert config["ssl.certificate.location"] == config["ssl.key.location"] == "/certs/me.pem"
    assert config["ssl.key.password"] == "k3y"


def test_a_pem_key_needs_no_trust_store() -> None:
    options = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "/certs/me.pem"}
    config = client_config(SERVERS, options)
    assert config is not None
    assert config["ssl.certificate.location"] == "/certs/me.pem"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN} username="ann" password="secret";',
        },
        {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": "https"},
        # Java's empty word for no host name check is librdkafka's `none`.
        {"kafka.security.protocol": "SSL", "kafka.ssl.endpoint.identification.algorithm": ""},
    ],
)
def test_librdkafka_accepts_every_translated_setting(options: dict[str, str]) -> None:
    config = client_config(SERVERS, options)
    assert config is not None
    AdminClient(config)  # raises where it does not know a setting or cannot use its value
