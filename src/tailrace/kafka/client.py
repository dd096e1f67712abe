"""Settings for the Kafka client that Tailrace itself uses, made from the options that Spark's connector takes.

Spark's connector uses the Java client; Tailrace asks brokers through librdkafka. The two share most names. Where
they differ (JAAS strings, Java key stores), this module translates, or says that it cannot.
"""

import re
from collections.abc import Mapping

_PASS_THROUGH = frozenset(
    {
        "client.dns.lookup",
        "sasl.mechanism",
        "sasl.mechanisms",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
    }
)
_JAVA_STORES = frozenset({"ssl.truststore.location", "ssl.keystore.location"})
_JAAS_PAIR = re.compile(r"(username|password)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;]+)")


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
    }
    client = {key.removeprefix("kafka."): value for key, value in options.items() if key.startswith("kafka.")}
    config |= {key: value for key, value in client.items() if key in _PASS_THROUGH}
    if "sasl.jaas.config" in client:
        pairs = {name: value.strip("\"'") for name, value in _JAAS_PAIR.findall(client["sasl.jaas.config"])}
        if set(pairs) != {"username", "password"}:
            return None
        config["sasl.username"], config["sasl.password"] = pairs["username"], pairs["password"]
    if _JAVA_STORES & client.keys():
        return _with_pem_stores(config, client)
    return config


def _with_pem_stores(config: dict[str, str | int], client: Mapping[str, str]) -> dict[str, str | int] | None:
    """Add the certificate files, which librdkafka reads only as PEM."""
    if client.get("ssl.truststore.type", "JKS").upper() != "PEM":
        return None
    if "ssl.truststore.location" in client:
        config["ssl.ca.location"] = client["ssl.truststore.location"]
    if "ssl.keystore.location" in client:
        if client.get("ssl.keystore.type", "JKS").upper() != "PEM":
            return None
        config["ssl.certificate.location"] = client["ssl.keystore.location"]
        config["ssl.key.location"] = client["ssl.keystore.location"]
    return config
