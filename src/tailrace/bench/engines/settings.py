"""Settings of an engine: what the report lists is what its process is given."""

from collections.abc import Callable, Mapping

from tailrace.bench.lane import Cell

EACH_PARTITION = "one per partition"
AS_ASKED = "as --checkpoint-every says"

CONSUMER: Mapping[str, str] = {
    "fetch.min.bytes": "1",
    "fetch.max.wait.ms": "500",
    "isolation.level": "read_uncommitted",
}
PRODUCER: Mapping[str, str] = {"acks": "all", "linger.ms": "0"}
"""The same in every engine. Several have another ``linger.ms`` of their own: 5 in Kafka's clients since 4.0 and in
librdkafka, 100 in Kafka Streams."""


def below(prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with a prefix before each key."""
    return {f"{prefix}{key}": value for key, value in settings.items()}


def resolved(settings: Mapping[str, str], cell: Cell, interval: Callable[[float], str]) -> dict[str, str]:
    """The settings with the numbers of one run in place of the words for them.

    Args:
        settings: As the report lists them.
        cell: The run.
        interval: How the engine writes a time of so many seconds.
    """
    words = {EACH_PARTITION: str(cell.partitions), AS_ASKED: interval(cell.checkpoint_every_s)}
    return {key: words.get(value, value) for key, value in settings.items()}


def arguments(values: Mapping[str, str]) -> tuple[str, ...]:
    """The values as the programs read them from their command line."""
    return tuple(f"{key}={value}" for key, value in values.items())


def milliseconds(seconds: float) -> str:
    """A time as Kafka's settings and Flink's write it, without a unit."""
    return str(round(seconds * 1000))
