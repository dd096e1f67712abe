"""Pickles replies, and flushes each of them in one write."""

import pickle
from typing import Any


class PickledReply(bytes):
    """The bytes of a reply, as Spark's worker would send it: in a list of its own."""


def pickle_reply(reply: Any) -> Any:
    """Pickle a reply with Python's own pickler; return it unchanged if that fails.

    Spark's pickler is slower because it is written in Python, for functions and classes, which a reply seldom contains.
    """
    if type(reply) is PickledReply:
        return reply
    try:
        return PickledReply(pickle.dumps([reply], pickle.HIGHEST_PROTOCOL))
    except Exception:  # noqa: BLE001 - Spark's pickler then succeeds, or raises the error that is reported
        return reply


def flush_each_reply() -> None:
    """Let Spark's worker flush each object that it writes.

    With its smallest buffer it would flush the length and the content separately, which wakes the reader of the reply
    twice, and it would read a message in two steps.
    """
    from pyspark.serializers import FramedSerializer

    write: Any = FramedSerializer._write_with_length  # noqa: SLF001 - Spark has no setting for it
    # A worker process is reused, and each command brings its own PickledReply class.
    write = getattr(write, "before_tailrace", write)

    def write_and_flush(self: Any, content: Any, stream: Any) -> None:
        if type(content) is list and len(content) == 1 and type(content[0]) is PickledReply:
            stream.write(len(content[0]).to_bytes(4, "big") + content[0])
        else:
            write(self, content, stream)
        stream.flush()

    write_and_flush.before_tailrace = write  # type: ignore[attr-defined]
    FramedSerializer._write_with_length = write_and_flush  # type: ignore[method-assign]  # noqa: SLF001
