import io
import threading
from typing import Any

import pytest
from pyspark.serializers import BatchedSerializer, CPickleSerializer, FramedSerializer

from tailrace.worker.reply import PickledReply, flush_each_reply, pickle_reply

REPLIES: list[Any] = [([[1, 2], ["a", None]], None, [12]), None, (b"bytes", {0: "failed"}, [1], None, 3)]


class Stream(io.BytesIO):
    """Records what was written before each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[bytes] = []

    def flush(self) -> None:
        self.flushed.append(self.getvalue())


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    write = FramedSerializer._write_with_length
    monkeypatch.setattr(FramedSerializer, "_write_with_length", getattr(write, "before_tailrace", write))


def by_spark(replies: list[Any]) -> bytes:
    """Return the bytes that Spark's worker sends."""
    stream = io.BytesIO()
    BatchedSerializer(CPickleSerializer(), 1).dump_stream(replies, stream)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def sent_by_us(replies: list[Any]) -> list[bytes]:
    stream = Stream()
    BatchedSerializer(CPickleSerializer(), 1).dump_stream(replies, stream)  # type: ignore[no-untyped-call]
    return stream.flushed


def test_each_reply_is_flushed_once_with_the_bytes_that_spark_sends() -> None:
    expected = [by_spark(REPLIES[:count]) for count in range(1, len(REPLIES) + 1)]
    flush_each_reply()
    flush_each_reply()  # a worker process is reused
    assert sent_by_us(REPLIES) == expected
    assert sent_by_us([pickle_reply(reply) for reply in REPLIES]) == expected


def test_objects_for_sparks_pickler_are_unchanged() -> None:
    def local() -> int:
        return 1

    assert pickle_reply(local) is local
    assert type(pickle_reply([1])) is PickledReply
    expected = by_spark([local])
    flush_each_reply()
    assert sent_by_us([pickle_reply(local)])[-1] == expected


def test_sparks_pickler_reports_an_object_that_cannot_be_pickled() -> None:
    lock = threading.Lock()
    assert pickle_reply(lock) is lock
    flush_each_reply()
    with pytest.raises(Exception, match="cannot pickle"):
        sent_by_us([pickle_reply(lock)])
