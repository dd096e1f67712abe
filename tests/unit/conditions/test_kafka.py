"""Why Spark's Kafka client failed, from a Java exception."""

import pytest

from tailrace.conditions.kafka import java_cause
from tailrace.errors import AuthenticationFailed, KafkaError, NotAuthorized, TlsFailed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("java.util.concurrent.ExecutionException: org.a.SaslAuthenticationException: no", AuthenticationFailed),
        (
            "java.lang.IllegalArgumentException: Could not find a 'KafkaClient' entry in the JAAS configuration. no",
            AuthenticationFailed,
        ),
        ("org.apache.kafka.common.KafkaException: x\nSSL keystore /a.jks could not be read", TlsFailed),
        ("org.a.b.ClusterAuthorizationException: no", NotAuthorized),
    ],
)
def test_the_class_of_a_java_exception_names_the_cause(text: str, kind: type[KafkaError]) -> None:
    cause = java_cause(text)
    assert cause is not None
    assert cause.kind is kind
    assert "Exception" not in cause.why


def test_another_exception_of_the_java_client_has_no_cause() -> None:
    assert java_cause("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node") is None
