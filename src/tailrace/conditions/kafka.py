"""Brokers that do not respond to Spark's Kafka client, or refuse it.

The Java client that Spark uses names the reason in the class of an exception.
"""

import re
from collections.abc import Mapping

from tailrace.conditions.condition import Condition
from tailrace.conditions.text import line_of
from tailrace.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, NotAuthorized, TlsFailed
from tailrace.kafka.cause import Cause, refusal

_JAVA_CLASSES = re.compile(r"^(?:Caused by: )?(?:(?:[\w$]+\.)+[\w$]+(?:Exception|Error)[\w$]*: ?)+")


def _reply(match: re.Match[str]) -> Mapping[str, str]:
    line = line_of(match)
    return {"reply": _JAVA_CLASSES.sub("", line).strip() or line.strip()}


def _refusal(error: type[KafkaError], pattern: str, fix: str) -> Condition:
    what = refusal(error, "the Kafka broker", "Spark's Kafka client")
    return Condition(error=error, pattern=pattern, what=what, why="{reply}", fix=fix, details=_reply)


BROKER_REFUSALS: dict[type[KafkaError], Condition] = {
    AuthenticationFailed: _refusal(
        AuthenticationFailed,
        r"SaslAuthenticationException|UnsupportedSaslMechanismException|LoginException"
        r"|Could not find a '\w+' entry in the JAAS",
        "correct kafka.sasl.jaas.config in options= of the source and the sink, and start again: no record is lost",
    ),
    TlsFailed: _refusal(
        TlsFailed,
        r"SslAuthenticationException|SSLHandshakeException|SSL (?:key|trust)store",
        "set kafka.ssl.truststore.type and .location in options= of the source and the sink so that Spark trusts the "
        "broker's certificate",
    ),
    NotAuthorized: _refusal(
        NotAuthorized,
        r"(?:Topic|Group|Cluster|TransactionalId)AuthorizationException",
        "grant READ on the sources and WRITE on the sink, and start again: no record is lost",
    ),
}
"""What the Java client reports if a broker refuses a login, a connection or an operation."""
BROKER_SILENT = Condition(
    error=BrokerUnreachable,
    spark=("TAILRACE_BROKER_SILENT",),
    what="no Kafka broker responds to Spark's Kafka client",
    why="{reply}",
    fix="check that this machine reaches the addresses that the broker advertises (advertised.listeners)",
)


def java_cause(text: str) -> Cause | None:
    """Find why Spark's Kafka client failed in a Java exception; None if no broker refused anything."""
    for error, condition in BROKER_REFUSALS.items():
        if match := condition.search(text):
            return Cause(error, _reply(match)["reply"])
    return None
