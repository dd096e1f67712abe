"""Check repeatedly, at little cost, whether the brokers at an address respond."""

from typing import Any

from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tailrace.errors import KafkaError
from tailrace.kafka.failures import NO_ANSWER, ClientConfig, broker_error, librdkafka_cause, unreachable

ANSWER_TIMEOUT_S = 5.0
"""Longer than at a start: a slow broker is not an unreachable one."""
_RECONNECT_MS = 1000
_REFUSED = (KafkaErrorCode._AUTHENTICATION, KafkaErrorCode._SSL)  # noqa: SLF001 - librdkafka's own codes begin so
_LOST = (KafkaErrorCode._TRANSPORT, KafkaErrorCode._RESOLVE)  # noqa: SLF001


class BrokerPing:
    """An admin client that stays connected, so that each ping is one small request."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._refusal: KafkaErrorCode | None = None
        """The latest refusal of a connection. It is kept because librdkafka reports repeated errors only once."""
        settings: dict[str, Any] = {**config, "reconnect.backoff.max.ms": _RECONNECT_MS, "error_cb": self._on_error}
        self._admin = AdminClient(settings)

    def ask(self) -> KafkaError | None:
        """Ask for the cluster's description; return None if a broker responds, or the error if none does.

        An answer counts even if it denies the request. A refused login and a failed TLS handshake are errors of their
        own: such a broker is reachable.
        """
        try:
            # Not for a topic: a broker may create a deleted topic that is requested by name.
            self._admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S).result(2 * ANSWER_TIMEOUT_S)
        except (KafkaException, TimeoutError) as failed:
            if not _has_answered(failed):
                self._admin.poll(0)  # calls error_cb with pending reports
                return self._error()
        self._refusal = None
        return None

    def close(self) -> None:
        """Disconnect."""
        del self._admin

    def _on_error(self, error: KafkaErrorCode) -> None:
        if error.code() in _REFUSED:
            self._refusal = error
        elif error.code() in _LOST:
            self._refusal = None

    def _error(self) -> KafkaError:
        if self._refusal is None:
            return unreachable(str(self._config["bootstrap.servers"]), NO_ANSWER)
        return broker_error(self._config, librdkafka_cause(self._config, self._refusal))


def _has_answered(failed: Exception) -> bool:
    """Return whether a failed request has an answer: a broker's error codes are above 0, librdkafka's own below."""
    return isinstance(failed, KafkaException) and bool(failed.args) and failed.args[0].code() > 0
