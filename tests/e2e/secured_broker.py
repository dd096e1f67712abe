"""A broker with TLS, SCRAM and ACLs, and users who may do only what a test grants them."""

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from conftest import Kafka, wait_until
from own_broker import own_broker

from tailrace.kafka.ports import LOOPBACK, free_ports
from tailrace.toolchain import ensure_java

PASSWORD = "correct-horse-battery"
PLAIN_USER = "bob"
"""The only user who can log in with PLAIN; the broker's configuration names him."""
_SCRAM, _PLAIN = "SCRAM-SHA-256", "PLAIN"
_MODULES = {
    _SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
    _PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
}


@dataclass
class SecuredKafka(Kafka):
    """Topics through the listener at which everything is allowed, users at the one that asks for a login."""

    secured_servers: str = ""
    folder: Path = Path()
    pid: int = 0
    """The process that guards the broker."""

    def user(self, name: str = "ann") -> str:
        """A user of the test's own, who may do nothing yet."""
        unique = f"{name}-{secrets.token_hex(4)}"
        self.set_password(unique, PASSWORD)
        wait_until(lambda: self._is_known(unique), 20, "the broker knows the user")
        return unique

    def set_password(self, user: str, password: str) -> None:
        """Give a user another password."""
        admin = AdminClient(self.config)  # held by name: its answers die with it
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(user, credentials, password.encode())
        admin.alter_user_scram_credentials([change])[user].result(20)

    def _is_known(self, user: str) -> bool:
        admin = AdminClient(self.config)
        try:
            return bool(admin.describe_user_scram_credentials([user])[user].result(20))
        except KafkaException:
            return False

    def grant(self, user: str, operation: str, name: str, *, group: bool = False) -> None:
        """Let a user do something with a topic, or with the groups whose names begin so."""
        admin = AdminClient(self.config)
        place = (ResourceType.GROUP if group else ResourceType.TOPIC, name)
        pattern = ResourcePatternType.PREFIXED if group else ResourcePatternType.LITERAL
        who = (f"User:{user}", "*", AclOperation[operation], AclPermissionType.ALLOW)
        right = AclBinding(*place, pattern, *who)
        admin.create_acls([right])[right].result(20)
        same = AclBindingFilter(*place, pattern, *who)
        wait_until(lambda: admin.describe_acls(same).result(20), 20, "the broker knows the permission")

    def revoke(self, user: str, topic: str) -> None:
        """Take every permission on a topic from a user."""
        admin = AdminClient(self.config)
        which = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin.delete_acls([which])[which].result(20)

    def options(self, user: str, password: str = PASSWORD, ca: str = "broker.pem") -> dict[str, str]:
        """The options of a source or sink that logs in through TLS, trusting a certificate."""
        return _login(user, password) | {
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / ca),
        }

    def options_for_java(self, user: str, password: str = PASSWORD, store: str = "broker.p12") -> dict[str, str]:
        """The same with a Java keystore, which only Spark's client can read."""
        return _login(user, password) | {
            "kafka.ssl.truststore.type": {"p12": "PKCS12", "jks": "JKS"}[store.rpartition(".")[2]],
            "kafka.ssl.truststore.location": str(self.folder / store),
            "kafka.ssl.truststore.password": PASSWORD,
        }


def _login(user: str, password: str) -> dict[str, str]:
    mechanism = _PLAIN if user == PLAIN_USER else _SCRAM
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{_MODULES[mechanism]} required username="{user}" password="{password}";',
    }


@contextlib.contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Start the broker in a folder; it is gone afterwards."""
    for name in ("broker", "stranger"):
        _make_certificate(folder, name)
    port, controller_port, secured_port = free_ports(3)
    listeners = f"PLAINTEXT://{LOOPBACK}:{port},SASL_SSL://{LOOPBACK}:{secured_port}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": f"{_SCRAM},{_PLAIN}",
        f"listener.name.sasl_ssl.{_SCRAM.lower()}.sasl.jaas.config": f"{_MODULES[_SCRAM]} required;",
        f"listener.name.sasl_ssl.{_PLAIN.lower()}.sasl.jaas.config": (
            f'{_MODULES[_PLAIN]} required user_{PLAIN_USER}="{PASSWORD}";'
        ),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Whoever comes through the plain listener: the broker itself, and the tests that grant permissions.
        "super.users": "User:ANONYMOUS",
        # Most clusters have it: asking whether a topic is there must not make it.
        "auto.create.topics.enable": "true",
        "delegation.token.secret.key": "for-tests-only",
    }
    with own_broker(folder / "kafka", port, controller_port, settings) as record:
        yield SecuredKafka(record.bootstrap_servers, [], f"{LOOPBACK}:{secured_port}", folder, record.pid)


def _make_certificate(folder: Path, name: str) -> None:
    """A key and a certificate that it signed itself: both kinds of Java's stores, and PEM."""
    store = ["-storetype", "PKCS12", "-keystore", str(folder / f"{name}.p12"), "-storepass", PASSWORD, "-alias", name]
    args = ["-genkeypair", "-keyalg", "EC", "-validity", "3650", "-dname", f"CN={name}", "-ext", f"SAN=ip:{LOOPBACK}"]
    _keytool([*args, *store])
    _keytool(["-exportcert", "-rfc", "-file", str(folder / f"{name}.pem"), *store])
    trusting = ["-storetype", "JKS", "-keystore", str(folder / f"{name}.jks"), "-storepass", PASSWORD, "-alias", name]
    _keytool(["-importcert", "-noprompt", "-file", str(folder / f"{name}.pem"), *trusting])


def _keytool(arguments: list[str]) -> None:
    """Java's keytool by its class: a Java runtime may come without the command."""
    java: Any = ensure_java(lambda _: None)
    command = [str(java.executable), "-XX:TieredStopAtLevel=1", "sun.security.tools.keytool.Main", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
