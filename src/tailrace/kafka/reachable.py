"""Whether the brokers at an address answer, asked again and again at little cost."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tailrace.kafka.topics import ClientConfig

ANSWER_TIMEOUT_S = 5.0
"""Longer than at a start: a broker that is only slow must not be taken for one that is gone."""
_RECONNECT_MS = 1000


class BrokerPing:
    """A client that stays connected, so that a question is one small request."""

    def __init__(self, config: ClientConfig) -> None:
        self._admin = AdminClient({**config, "reconnect.backoff.max.ms": _RECONNECT_MS})

    def ask(self) -> bool:
        """Return whether a broker answers, be it with a refusal."""
        try:
            # Names no topic: asked for one that is gone, a broker may make it anew.
            self._admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S).result(2 * ANSWER_TIMEOUT_S)
        except KafkaException as failed:
            # librdkafka's own errors, such as a timeout, are below 0; a broker's are above.
            return bool(failed.args) and failed.args[0].code() > 0
        except TimeoutError:
            return False
        return True
