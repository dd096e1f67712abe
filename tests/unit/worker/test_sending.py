import io
import threading
from typing import Any

import pytest
from pyspark.serializers import BatchedSerializer, CPickleSerializer, FramedSerializer

from tailrace.worker.sending import Packed, packed, send_at_once

ANSWERS: list[Any] = [([[1, 2], ["a", None]], None, [12]), None, (b"bytes", {0: "failed"}, [1], None, 3)]


class Stream(io.BytesIO):
    """Knows what had been written whenever it was to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def flush(self) -> None:
        self.sent.append(self.getvalue())


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    write = FramedSerializer._write_with_length
    monkeypatch.setattr(FramedSerializer, "_write_with_length", getattr(write, "before_tailrace", write))


def by_spark(answers: list[Any]) -> bytes:
    """What Spark's worker sends of them."""
    stream = io.BytesIO()
    BatchedSerializer(CPickleSerializer(), 1).dump_stream(answers, stream)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def sent_by_us(answers: list[Any]) -> list[bytes]:
    stream = Stream()
    BatchedSerializer(CPickleSerializer(), 1).dump_stream(answers, stream)  # type: ignore[no-untyped-call]
    return stream.sent


def test_each_answer_is_sent_whole_when_it_is_written_and_its_bytes_are_sparks() -> None:
    expected = [by_spark(ANSWERS[:count]) for count in range(1, len(ANSWERS) + 1)]
    send_at_once()
    send_at_once()  # a worker runs one function after the other
    assert sent_by_us(ANSWERS) == expected
    assert sent_by_us([packed(answer) for answer in ANSWERS]) == expected


def test_what_only_sparks_pickler_knows_is_left_to_it() -> None:
    def local() -> int:
        return 1

    assert packed(local) is local
    assert type(packed([1])) is Packed
    expected = by_spark([local])
    send_at_once()
    assert sent_by_us([packed(local)])[-1] == expected


def test_what_none_can_pickle_is_told_by_sparks() -> None:
    lock = threading.Lock()
    assert packed(lock) is lock
    send_at_once()
    with pytest.raises(Exception, match="cannot pickle"):
        sent_by_us([packed(lock)])
