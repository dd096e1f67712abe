"""Replay letters into their source topics, for the running pipeline."""

from collections.abc import Callable, Sequence
from functools import partial

from tailrace.dead_letters.letter import Letter
from tailrace.kafka.records import ANY_PARTITION, NewRecord, RecordSender
from tailrace.kafka.topics import ClientConfig, partition_counts


class ToSource:
    """Sends the original key, value and headers to the original topic and partition.

    The headers that Tailrace added stay, so that the attempts are counted on. The record gets a new timestamp: a broker
    that deletes old records could delete one with its original timestamp before it is read.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._partitions: dict[str, int] = {}

    def replay(self, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
        """Send letters.

        Raises:
            TopicMissing: A source topic does not exist.
            NotAuthorized: This user may not write to it.
            KafkaError: The broker did not accept all letters.
        """
        missing = {letter.topic for letter in letters} - self._partitions.keys()
        if missing:
            self._partitions |= partition_counts(self._config, sorted(missing))
        sender = RecordSender(self._config, resends=True)
        try:
            for letter in letters:
                if not sender.send(self._record(letter), partial(on_done, letter)):
                    break
        finally:
            sender.finish()

    def _record(self, letter: Letter) -> NewRecord:
        # A topic that was created again may have fewer partitions.
        partition = letter.partition if letter.partition < self._partitions[letter.topic] else ANY_PARTITION
        return NewRecord(letter.topic, letter.record.value, letter.record.key, letter.record.headers, partition)
