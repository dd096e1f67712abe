"""Translate options of Spark's Kafka connector into settings for Tailrace's own Kafka client.

Spark's connector uses the Java client; Tailrace uses librdkafka. Most names are the same. If they differ (JAAS strings,
keystores), this module translates them or reports that it cannot.
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
    """Return the Kafka client's options among Spark's, without the ``kafka.`` prefix."""
    return {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}


def client_config(bootstrap_servers: str, options: Mapping[str, str]) -> dict[str, str | int] | None:
    """Return librdkafka settings for the same brokers, or None if the options cannot be translated.

    Args:
        bootstrap_servers: The brokers' addresses.
        options: Source or sink options of Spark's Kafka connector; client options begin with ``kafka.``.
    """
    config: dict[str, str | int] = {
        "bootstrap.servers": bootstrap_servers,
        # Tailrace's errors report every failure; librdkafka would log it to stderr too.
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 2000,
        # A new client waits for half of this time before its first request: 55 ms by default, 14 ms with this value.
        # `start` and `check` use a dozen clients.
        "reconnect.backoff.ms": 20,
    }
    client = java_client_options(options)
    config |= {key: value for key, value in client.items() if key in _SAME_NAME}
    config |= {_PEM_NAMES[key]: value for key, value in client.items() if key in _PEM_NAMES}
    if config.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"  # Java disables it with an empty value
    if "sasl.jaas.config" in client:
        pairs = _jaas_pairs(client["sasl.jaas.config"])
        if set(pairs) != {"username", "password"}:
            return None
        config["sasl.username"], config["sasl.password"] = pairs["username"], pairs["password"]
    elif client.get("security.protocol", "").upper().startswith("SASL"):
        return None  # a delegation token or Java's own login configuration, which only Spark has
    return config if _add_pem_files(config, client) else None


def client_identity(options: Mapping[str, str]) -> dict[str, str | int]:
    """Return only the address and the user name of Spark's Kafka options, under librdkafka's names."""
    client = java_client_options(options)
    name = _jaas_pairs(client.get("sasl.jaas.config", "")).get("username")
    address: dict[str, str | int] = {"bootstrap.servers": client.get("bootstrap.servers", "the given address")}
    return address | ({"sasl.username": name} if name else {})


def _jaas_pairs(text: str) -> dict[str, str]:
    """Return user name and password from a JAAS string, unquoted and unescaped."""
    pairs = {}
    for name, double_quoted, single_quoted, bare in _JAAS_PAIR.findall(text):
        pairs[name] = bare or re.sub(r"\\(.)", r"\1", double_quoted or single_quoted)
    return pairs


def _add_pem_files(config: dict[str, str | int], client: Mapping[str, str]) -> bool:
    """Add the certificate files; return False if one is a Java keystore (JKS), which librdkafka cannot read."""
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
    """Return client settings for a broker without TLS or login, such as a development broker."""
    config = client_config(bootstrap_servers, {})
    if config is None:
        raise AssertionError("an address alone always translates")
    return config
