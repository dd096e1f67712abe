"""Ask a broker which operations a user may perform on topics and consumer groups."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.errors import NotAuthorized
from tailrace.kafka.admin import admin_client
from tailrace.kafka.failures import user_of

READ, WRITE = "READ", "WRITE"
Rights: TypeAlias = frozenset[str] | None
"""The operations that a user may perform; None if the broker does not say."""

ASK_TIMEOUT_S = 5.0
_DENIED = (KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)


def topic_rights(config: Mapping[str, str | int], topics: Iterable[str]) -> dict[str, Rights]:
    """Return what this client may do with each topic.

    READ and WRITE include DESCRIBE, so a client without DESCRIBE may do nothing.
    """
    with _connected_admin(config) as admin:
        names = TopicCollection(list(topics))
        answers = admin.describe_topics(names, include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S)
        return {topic: _rights(answer) for topic, answer in answers.items()}


def group_rights(config: Mapping[str, str | int], group: str) -> Rights:
    """Return what this client may do with a consumer group, which need not exist."""
    with _connected_admin(config) as admin:
        answers = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S
        )
        return _rights(answers[group])


def require_creatable(config: Mapping[str, str | int], topic: str) -> None:
    """Check that a topic can be created, without creating it.

    Raises:
        NotAuthorized: This user may not create it.
        KafkaError: The broker refuses for another reason, or does not answer.
    """
    request = NewTopic(topic, num_partitions=1, replication_factor=-1)
    with _connected_admin(config) as admin:
        try:
            admin.create_topics([request], operation_timeout=ASK_TIMEOUT_S, validate_only=True)[topic].result(15)
        except KafkaException as refused:
            if refused.args[0].code() == KafkaErrorCode.TOPIC_ALREADY_EXISTS:
                return  # another process has created it meanwhile
            raise


def require_rights(
    config: Mapping[str, str | int], operation: str, rights: Mapping[str, Rights], *, group: bool = False
) -> list[str]:
    """Raise an error if a user lacks a permission that the pipeline needs.

    Args:
        config: The client settings, with the user and the brokers.
        operation: ``READ`` or ``WRITE``.
        rights: The user's permissions by the name of the topic or group.
        group: Whether the names are consumer groups.

    Returns:
        The names for which the broker does not report permissions.

    Raises:
        NotAuthorized: The user lacks the operation on one of them.
    """
    for name, held in rights.items():
        if held is not None and operation not in held:
            raise not_authorized(operation, name, config, held, group=group)
    return sorted(name for name, held in rights.items() if held is None)


def not_authorized(
    operation: str, name: str, config: Mapping[str, str | int], held: Rights = None, *, group: bool = False
) -> NotAuthorized:
    """Return the error for a missing permission, with the command that grants it."""
    kind, address = "group" if group else "topic", config["bootstrap.servers"]
    granted = "" if held is None else f", but the broker grants {', '.join(sorted(held)) or 'nothing'}"
    verb = {READ: "read", WRITE: "write to"}[operation]
    return NotAuthorized(
        f"{user_of(config)} may not {verb} {kind} {name!r} at {address}",
        why=f"that requires {operation} on it{granted}",
        fix=f"kafka-acls --bootstrap-server {address} --add "
        f"--allow-principal User:{config.get('sasl.username', 'NAME')} "
        f"--operation {operation.capitalize()} --{kind} {name}",
    )


@contextmanager
def _connected_admin(config: Mapping[str, str | int]) -> Iterator[AdminClient]:
    """Open an admin client that is connected: the first request of a new one sometimes takes seconds."""
    with admin_client(config) as admin:
        admin.list_topics(timeout=ASK_TIMEOUT_S)
        yield admin


def _rights(answer: Future[Any]) -> Rights:
    try:
        operations: Collection[Any] | None = answer.result(2 * ASK_TIMEOUT_S).authorized_operations
    except KafkaException as refused:
        return frozenset() if refused.args[0].code() in _DENIED else None
    except TimeoutError:
        return None
    return frozenset(operation.name for operation in operations) if operations else None
