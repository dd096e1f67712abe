"""Why a Kafka client failed. Needs no Kafka client itself."""

from dataclasses import dataclass

from tailrace.errors import KafkaError


@dataclass(frozen=True)
class Cause:
    """Why a client failed: the error class and one sentence."""

    kind: type[KafkaError]
    why: str
