import io

import pytest
from pyspark.serializers import CPickleSerializer, FramedSerializer

from tailrace.functions.sending import send_at_once


class Stream(io.BytesIO):
    """Knows what had been written whenever it was to be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def flush(self) -> None:
        self.sent.append(self.getvalue())


def test_each_object_is_sent_whole_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FramedSerializer, "_write_with_length", FramedSerializer._write_with_length
    )  # put back afterwards
    plain, prompt = io.BytesIO(), Stream()
    objects = [("first", 1), ("second", 2)]
    CPickleSerializer().dump_stream(objects, plain)  # type: ignore[no-untyped-call]
    send_at_once()
    send_at_once()  # a worker runs one function after the other
    CPickleSerializer().dump_stream(objects, prompt)  # type: ignore[no-untyped-call]
    assert prompt.getvalue() == plain.getvalue(), "the bytes are Spark's own"
    first, both = prompt.sent
    assert both == plain.getvalue()
    first_alone = io.BytesIO()
    CPickleSerializer().dump_stream(objects[:1], first_alone)  # type: ignore[no-untyped-call]
    assert first == first_alone.getvalue()
