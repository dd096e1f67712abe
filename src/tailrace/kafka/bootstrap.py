"""Find the broker that a command connects to."""

import os

from tailrace.errors import BrokerUnnamed
from tailrace.kafka.broker import DEFAULT_NAME, running_brokers

ENVIRONMENT_VARIABLE = "TAILRACE_BOOTSTRAP_SERVERS"


def resolve_bootstrap_servers(given: str | None) -> str:
    """Return the given address, else the one in the environment, else the running development broker's."""
    if given:
        return given
    if from_environment := os.environ.get(ENVIRONMENT_VARIABLE):
        return from_environment
    started = [record for record in running_brokers() if record.owner == "hand"]
    brokers = [record for record in started if record.name == DEFAULT_NAME] or started
    if len(brokers) == 1:
        return brokers[0].bootstrap_servers
    if not brokers:
        raise BrokerUnnamed(
            "no Kafka broker is given, and no development broker is running",
            fix=f"run: tailrace broker start; or pass --bootstrap-servers HOST:PORT, or set {ENVIRONMENT_VARIABLE}",
        )
    raise BrokerUnnamed(
        "several development brokers are running: " + ", ".join(record.name for record in brokers),
        fix="choose one, such as: --bootstrap-servers " + brokers[0].bootstrap_servers,
    )
