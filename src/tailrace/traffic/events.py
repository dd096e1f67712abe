"""Events of a fixed size, made up: what the benchmark sends."""

from collections.abc import Callable
from dataclasses import dataclass

KEYS = 1000
SEQUENCE_FIELD = "id"
SENT_FIELD = "sent_ns"
_LONGEST_SEQUENCE = 10
"""Digits and sign of the largest sequence number that leaves a record at its size."""


@dataclass(frozen=True)
class Event:
    """What is in an event besides its number, its time and its padding."""

    key: str
    amount: float


def event(sequence: int) -> Event:
    """The content of an event, which follows from its number alone: any lane's output can be checked against it."""
    mixed = (sequence * 2_654_435_761) & 0xFFFFFFFF
    return Event(f"k-{mixed % KEYS:04d}", (mixed >> 7) % 100_000 / 100)


def event_maker(payload_bytes: int) -> Callable[[int, int], tuple[bytes, bytes]]:
    """A function from sequence number and intended send time to a record's key and value of that size."""

    def make(sequence: int, sent_ns: int) -> tuple[bytes, bytes]:
        content = event(sequence)
        head = f'{{"id":{sequence},"key":"{content.key}","amount":{content.amount},"sent_ns":{sent_ns},"pad":"'
        return content.key.encode(), (head + "x" * (payload_bytes - len(head) - 2) + '"}').encode()

    return make


def smallest_payload() -> int:
    """The size below which an event does not fit."""
    return len('{"id":,"key":"k-0000","amount":999.99,"sent_ns":1700000000000000000,"pad":""}') + _LONGEST_SEQUENCE
