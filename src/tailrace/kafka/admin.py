"""Our own client for questions to a broker, whose failures are errors about that broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tailrace.kafka.failures import ClientConfig, broker_error, librdkafka_cause


@contextmanager
def asking(config: ClientConfig) -> Iterator[AdminClient]:
    """Open a client; whatever a question ends with is classified with what the client reported beside it.

    Raises:
        BrokerUnreachable: No broker answered in time.
        TlsFailed: There is no TLS connection.
        AuthenticationFailed: The broker does not accept the login.
        NotAuthorized: The broker does not let this user ask.
        KafkaError: It refused for another reason.
    """
    beside: list[KafkaErrorCode] = []
    admin: AdminClient | None = None
    try:
        settings: dict[str, Any] = {**config, "error_cb": beside.append}
        admin = AdminClient(settings)
        yield admin
    except (KafkaException, TimeoutError) as failed:
        if admin is not None:
            admin.poll(0)  # hands over what was reported
        reason = failed.args[0] if isinstance(failed, KafkaException) else None
        raise broker_error(config, librdkafka_cause(config, reason, beside)) from failed
