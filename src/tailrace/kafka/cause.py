"""Why a Kafka client failed. Needs no Kafka client itself."""

from dataclasses import dataclass

from tailrace.errors import AuthenticationFailed, KafkaError, NotAuthorized, TlsFailed


@dataclass(frozen=True)
class Cause:
    """Why a client failed: the error class and one sentence."""

    kind: type[KafkaError]
    why: str


_REFUSED: dict[type[KafkaError], str] = {
    TlsFailed: "{broker} and {client} cannot agree on TLS",
    AuthenticationFailed: "{broker} does not accept the login of {client}",
    NotAuthorized: "{broker} does not authorize {client}",
}


def refusal(kind: type[KafkaError], broker: str, client: str) -> str:
    """Say what a broker refused a client; any other kind of error is a refused request."""
    return _REFUSED.get(kind, "{broker} refused a request").format(broker=broker, client=client)
