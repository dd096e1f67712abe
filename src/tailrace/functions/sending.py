"""Answers leave a worker when they are made, each in one piece."""

from typing import Any


def send_at_once() -> None:
    """Let Spark's worker send each object that it has written.

    With its smallest buffer it would do so, too, but length and content apart, for which whoever awaits the answer is
    woken twice; and a message would be read in two pieces.
    """
    from pyspark.serializers import FramedSerializer

    write: Any = FramedSerializer._write_with_length  # noqa: SLF001 - there is no other place to say so
    if hasattr(write, "tailrace"):  # the worker has been here before
        return

    def write_and_send(self: Any, content: Any, stream: Any) -> None:
        write(self, content, stream)
        stream.flush()

    write_and_send.tailrace = True  # type: ignore[attr-defined]
    FramedSerializer._write_with_length = write_and_send  # type: ignore[method-assign]  # noqa: SLF001
