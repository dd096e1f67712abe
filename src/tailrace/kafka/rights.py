"""What a user may do with topics and consumer groups, as the broker itself says."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeAlias

from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.errors import NotAuthorized
from tailrace.kafka.admin import asking
from tailrace.kafka.failures import user_of

READ, WRITE = "READ", "WRITE"
Rights: TypeAlias = frozenset[str] | None
"""The operations that a user may do; None if the broker does not say."""

ASK_TIMEOUT_S = 5.0
_DENIED = (KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)


def topic_rights(config: Mapping[str, str | int], topics: Iterable[str]) -> dict[str, Rights]:
    """Ask what this client may do with each topic.

    A right to read or write includes the one to describe: without that one, there is none.
    """
    with _acquainted(config) as admin:
        names = TopicCollection(list(topics))
        asked = admin.describe_topics(names, include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S)
        return {topic: _rights(answer) for topic, answer in asked.items()}


def group_rights(config: Mapping[str, str | int], group: str) -> Rights:
    """Ask what this client may do with a consumer group, whether there is one of this name or not."""
    with _acquainted(config) as admin:
        asked = admin.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=ASK_TIMEOUT_S
        )
        return _rights(asked[group])


def require_creatable(config: Mapping[str, str | int], topic: str) -> None:
    """See that a topic could be made, without making it.

    Raises:
        NotAuthorized: This user may not make it.
        KafkaError: The broker refuses it for another reason, or does not answer.
    """
    request = NewTopic(topic, num_partitions=1, replication_factor=-1)
    with _acquainted(config) as admin:
        try:
            admin.create_topics([request], operation_timeout=ASK_TIMEOUT_S, validate_only=True)[topic].result(15)
        except KafkaException as refused:
            if refused.args[0].code() == KafkaErrorCode.TOPIC_ALREADY_EXISTS:
                return  # another process made it in the meantime
            raise


def require_rights(
    config: Mapping[str, str | int], operation: str, rights: Mapping[str, Rights], *, group: bool = False
) -> list[str]:
    """Refuse topics or groups that a user may not use as the pipeline needs them.

    Args:
        config: Who the user is, and at which brokers.
        operation: ``READ`` or ``WRITE``.
        rights: What the user may do with each of them.
        group: Whether they are consumer groups.

    Returns:
        Those of which the broker does not say it.

    Raises:
        NotAuthorized: The operation is not among the rights to one of them.
    """
    for name, held in rights.items():
        if held is not None and operation not in held:
            raise not_authorized(operation, name, config, held, group=group)
    return sorted(name for name, held in rights.items() if held is None)


def not_authorized(
    operation: str, name: str, config: Mapping[str, str | int], held: Rights = None, *, group: bool = False
) -> NotAuthorized:
    """The error for a right that is missing, with the command that grants it."""
    kind, address = "group" if group else "topic", config["bootstrap.servers"]
    granted = "" if held is None else f", and the broker grants {', '.join(sorted(held)) or 'nothing'}"
    verb = {READ: "read", WRITE: "write to"}[operation]
    return NotAuthorized(
        f"{user_of(config)} may not {verb} {kind} {name!r} at {address}",
        why=f"that takes {operation} on it{granted}",
        fix=f"kafka-acls --bootstrap-server {address} --add "
        f"--allow-principal User:{config.get('sasl.username', 'NAME')} "
        f"--operation {operation.capitalize()} --{kind} {name}",
    )


@contextmanager
def _acquainted(config: Mapping[str, str | int]) -> Iterator[AdminClient]:
    """A client that knows the brokers already: a fresh one now and then takes seconds to ask its first question."""
    with asking(config) as admin:
        admin.list_topics(timeout=ASK_TIMEOUT_S)
        yield admin


def _rights(answer: Future[Any]) -> Rights:
    try:
        found: Collection[Any] | None = answer.result(2 * ASK_TIMEOUT_S).authorized_operations
    except KafkaException as refused:
        return frozenset() if refused.args[0].code() in _DENIED else None
    except TimeoutError:
        return None
    return frozenset(operation.name for operation in found) if found else None
