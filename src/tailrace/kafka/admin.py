"""Tailrace's own admin client, whose failures become errors about the broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tailrace.kafka.failures import ClientConfig, broker_error, librdkafka_cause


@contextmanager
def admin_client(config: ClientConfig) -> Iterator[AdminClient]:
    """Open an admin client; raise the classified error if a request fails.

    The client reports a refused login or a failed TLS handshake to a callback, while the request itself only times out.

    Raises:
        BrokerUnreachable: No broker responded in time.
        TlsFailed: The TLS handshake failed.
        AuthenticationFailed: The broker refused the login.
        NotAuthorized: This user may not send the request.
        KafkaError: The broker refused the request for another reason.
    """
    reported: list[KafkaErrorCode] = []
    admin: AdminClient | None = None
    try:
        settings: dict[str, Any] = {**config, "error_cb": reported.append}
        admin = AdminClient(settings)
        yield admin
    except (KafkaException, TimeoutError) as failed:
        if admin is not None:
            admin.poll(0)  # calls error_cb with pending reports
        reason = failed.args[0] if isinstance(failed, KafkaException) else None
        raise broker_error(config, librdkafka_cause(config, reason, reported)) from failed
