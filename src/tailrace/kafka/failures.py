"""Why a broker did not respond to Tailrace's own Kafka client: not reached, no TLS, no login, not authorized.

Librdkafka reports a refused login or a failed TLS handshake to a callback, while the request itself times out. For
Spark's own Kafka client see :mod:`tailrace.conditions.kafka`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import KafkaError as KafkaErrorCode

from tailrace.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, NotAuthorized, TlsFailed
from tailrace.kafka.cause import Cause, refusal
from tailrace.kafka.listener import Wants, wanted_by

ClientConfig: TypeAlias = Mapping[str, str | int]

_LOGIN = {
    KafkaErrorCode._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
    KafkaErrorCode.SASL_AUTHENTICATION_FAILED,
    KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM,
    KafkaErrorCode.ILLEGAL_SASL_STATE,
}
_RIGHTS = {
    KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED,
    KafkaErrorCode.GROUP_AUTHORIZATION_FAILED,
    KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TLS = {KafkaErrorCode._SSL}  # noqa: SLF001
NO_ANSWER = "it did not respond in time"
SEE_BROKER_LOG = "look at the broker's log"
ASK_PERMISSION = "ask the broker's administrator for the permission (kafka-acls --add)"
_OPTIONS = "in options= of the source and the sink"
_TLS_WANTED = "it accepts TLS connections only, and the client does not use TLS"
_TLS_NOT_HERE = "the client uses TLS, and the port does not"
_LOGIN_WANTED = "it accepts connections with a login only, and the client has none"


def librdkafka_cause(
    config: ClientConfig, failed: KafkaErrorCode | None, beside: Sequence[KafkaErrorCode] = ()
) -> Cause:
    """Find why a request of Tailrace's own client failed.

    Args:
        config: The client's settings.
        failed: The error of the request; None if no answer came.
        beside: What the client reported to its callback meanwhile.
    """
    everything = [*([failed] if failed is not None else []), *beside]
    for codes, kind in ((_RIGHTS, NotAuthorized), (_LOGIN, AuthenticationFailed), (_TLS, TlsFailed)):
        for error in everything:
            if error.code() in codes:
                return Cause(kind, _own_words(error))
    if any("connecting to a PLAINTEXT broker listener" in error.str() for error in everything):
        return Cause(TlsFailed, _TLS_NOT_HERE)
    if failed is not None and failed.code() == KafkaErrorCode._INVALID_ARG:  # noqa: SLF001
        words = _own_words(failed)
        return Cause(TlsFailed if "ssl" in words.lower() else KafkaError, words)
    if failed is not None and failed.code() >= 0 and failed.code() != KafkaErrorCode.REQUEST_TIMED_OUT:
        return Cause(KafkaError, _own_words(failed))
    wants = wanted_by(str(config.get("bootstrap.servers", "")), str(config.get("security.protocol", "PLAINTEXT")))
    if wants is not None:
        return Cause(TlsFailed, _TLS_WANTED) if wants is Wants.TLS else Cause(AuthenticationFailed, _LOGIN_WANTED)
    return Cause(BrokerUnreachable, _own_words(failed) if failed is not None else NO_ANSWER)


def broker_error(config: ClientConfig, cause: Cause) -> KafkaError:
    """Return the error for a broker that did not respond to a request."""
    address = str(config.get("bootstrap.servers", "the given address"))
    if cause.kind is BrokerUnreachable:
        return unreachable(address, cause.why)
    client = "this client" if cause.kind is TlsFailed else user_of(config)
    what = refusal(cause.kind, f"the Kafka broker at {address}", client)
    return cause.kind(what, why=cause.why, fix=_fix(cause))


def unreachable(address: str, reason: str) -> BrokerUnreachable:
    """Return the error for a broker that does not respond."""
    return BrokerUnreachable(
        f"no Kafka broker responds at {address}",
        why=reason,
        fix="check --bootstrap-servers, or start a development broker: tailrace broker start",
    )


def user_of(config: ClientConfig) -> str:
    """Return the user that a client logs in as."""
    name = config.get("sasl.username")
    return f"user {name!r}" if name else "this client"


def _fix(cause: Cause) -> str:
    if cause.kind is TlsFailed:
        return _tls_fix(cause.why)
    if cause.kind is AuthenticationFailed and cause.why == _LOGIN_WANTED:
        return f"set kafka.security.protocol, kafka.sasl.mechanism and kafka.sasl.jaas.config {_OPTIONS}"
    if cause.kind is AuthenticationFailed:
        return f"correct user and password in kafka.sasl.jaas.config, or kafka.sasl.mechanism, {_OPTIONS}"
    return ASK_PERMISSION if cause.kind is NotAuthorized else SEE_BROKER_LOG


def _tls_fix(why: str) -> str:
    if why == _TLS_WANTED:
        return f"set kafka.security.protocol to SSL or SASL_SSL {_OPTIONS}"
    if why == _TLS_NOT_HERE:
        return f"use the TLS port, or set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT {_OPTIONS}"
    return f"trust the authority of the broker's certificate: kafka.ssl.truststore.type and .location {_OPTIONS}"


def _own_words(error: KafkaErrorCode) -> str:
    """Return librdkafka's sentence without its address and timing."""
    words = re.sub(r"^\w+://\S+: ", "", str(error.str()))
    if "certificate verify failed" in words:
        return "the broker's certificate is not signed by an authority that the client trusts"
    return re.sub(r" \(after [^)]*\)(?: \(.*\))?$", "", words)
