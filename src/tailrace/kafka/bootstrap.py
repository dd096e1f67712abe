"""Which broker a command talks to."""

import os

from tailrace.errors import BrokerUnnamed
from tailrace.kafka.broker import DEFAULT_NAME, running_brokers

ENVIRONMENT_VARIABLE = "TAILRACE_BOOTSTRAP_SERVERS"


def resolve_bootstrap_servers(given: str | None) -> str:
    """The brokers' address: the one given, else the environment's, else the running development broker's."""
    if given:
        return given
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        return from_environment
    by_hand = [record for record in running_brokers() if record.owner == "hand"]
    named = [record for record in by_hand if record.name == DEFAULT_NAME] or by_hand
    if len(named) == 1:
        return named[0].bootstrap_servers
    if not named:
        raise BrokerUnnamed(
            "no Kafka broker was named and no development broker is running",
            fix=f"tailrace broker start, or --bootstrap-servers HOST:PORT, or set {ENVIRONMENT_VARIABLE}",
        )
    raise BrokerUnnamed(
        "several development brokers are running: " + ", ".join(record.name for record in named),
        fix="choose one: --bootstrap-servers " + named[0].bootstrap_servers,
    )
