"""Answers leave a worker when they are made, each in one piece."""

import pickle
from typing import Any


class Packed(bytes):
    """An answer as it goes over the wire, in a list of its own as Spark's worker would send it."""


def packed(answer: Any) -> Any:
    """An answer pickled by Python's own pickler; as it is where that cannot, for Spark's.

    Spark's is one in Python, for functions and classes: what an answer holds is seldom any of these.
    """
    if type(answer) is Packed:
        return answer
    try:
        return Packed(pickle.dumps([answer], pickle.HIGHEST_PROTOCOL))
    except Exception:  # noqa: BLE001 - whatever it is, Spark's pickler meets it, too, and what that raises is told
        return answer


def send_at_once() -> None:
    """Let Spark's worker send each object that it has written.

    With its smallest buffer it would do so, too, but length and content apart, for which whoever awaits the answer is
    woken twice; and a message would be read in two pieces.
    """
    from pyspark.serializers import FramedSerializer

    write: Any = FramedSerializer._write_with_length  # noqa: SLF001 - there is no other place to say so
    # A worker runs one function after the other, each with a class of its own for what is packed.
    write = getattr(write, "before_tailrace", write)

    def write_and_send(self: Any, content: Any, stream: Any) -> None:
        if type(content) is list and len(content) == 1 and type(content[0]) is Packed:
            stream.write(len(content[0]).to_bytes(4, "big") + content[0])
        else:
            write(self, content, stream)
        stream.flush()

    write_and_send.before_tailrace = write  # type: ignore[attr-defined]
    FramedSerializer._write_with_length = write_and_send  # type: ignore[method-assign]  # noqa: SLF001
