"""Settings for the Kafka client that Tailrace itself uses, made from the options that Spark's connector takes.

Spark's connector uses the Java client; Tailrace asks brokers through librdkafka. The two share most names. Where
they differ (JAAS strings, key stores), this module translates, or says that it cannot.
"""

import re
from collections.abc import Mapping

_SAME_NAME = frozenset(
    {"client.dns.lookup", "sasl.mechanism", "security.protocol", "ssl.endpoint.identification.algorithm"}
)
_PEM_NAMES = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
}
_JAAS_PAIR = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def java_client_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the Kafka client itself among Spark's, under their own names."""
    return {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}


def client_config(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, str | int] | None:
    """The librdkafka settings that reach the same brokers, or None where they cannot be translated.

    Args:
        bootstrap_servers: The brokers' addresses.
        options: Source or sink options as Spark's Kafka connector takes them (``kafka.`` in front of client ones).
    """
    config: dict[str, str | int] = {
        "bootstrap.servers": bootstrap_servers,
        # Our errors are sentences of our own; librdkafka's log lines on stderr would only double them.
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 2000,
        # A new client waits for half of this before it asks its first question: 55 ms by default, 14 ms with this one.
        # Start and check ask a dozen.
        "reconnect.backoff.ms": 20,
    }
    client = java_client_options(options)
    config |= {key: value for key, value in client.items() if key in _SAME_NAME}
    config |= {_PEM_NAMES[key]: value for key, value in client.items() if key in _PEM_NAMES}
    if config.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"  # Java's word for off is the empty one
    if "sasl.jaas.config" in client:
        pairs = _jaas_pairs(client["sasl.jaas.config"])
        if set(pairs) != {"username", "password"}:
            return None
        config["sasl.username"], config["sasl.password"] = pairs["username"], pairs["password"]
    return config if _add_pem_files(config, client) else None


def client_identity(options: Mapping[str, str]) -> dict[str, str | int]:
    """Where a client of Spark's connects and who it is, under librdkafka's names, and nothing else of its options."""
    client = java_client_options(options)
    name = _jaas_pairs(client.get("sasl.jaas.config", "")).get("username")
    address: dict[str, str | int] = {"bootstrap.servers": client.get("bootstrap.servers", "the given address")}
    return address | ({"sasl.username": name} if name else {})


def _jaas_pairs(text: str) -> dict[str, str]:
    """User name and password in a JAAS string, quotes and escapes resolved."""
    pairs = {}
    for name, double_quoted, single_quoted, bare in _JAAS_PAIR.findall(text):
        pairs[name] = bare or re.sub(r"\\(.)", r"\1", double_quoted or single_quoted)
    return pairs


def _add_pem_files(config: dict[str, str | int], client: Mapping[str, str]) -> bool:
    """Add the certificate files; return False where one is a Java key store, which librdkafka cannot read."""
    for store, targets in (
        ("ssl.truststore", ("ssl.ca.location",)),
        ("ssl.keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        location = client.get(f"{store}.location")
        if location is None:
            continue
        if client.get(f"{store}.type", "JKS").upper() != "PEM":
            return False
        config |= dict.fromkeys(targets, location)
    return True


def plain_client(bootstrap_servers: str) -> Mapping[str, str | int | bool]:
    """Settings for our own clients of a broker that asks for no credentials, such as one that Tailrace started."""
    config = client_config(bootstrap_servers, {})
    if config is None:
        raise AssertionError("an address alone always translates")
    return config
