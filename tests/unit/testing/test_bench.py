from typing import Any

from tailrace.testing.bench import _output_record


class Read:
    """A message as a consumer returns it."""

    def topic(self) -> str:
        return "decisions"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def key(self) -> bytes:
        return b"k"

    def value(self) -> None:
        return None

    def headers(self) -> list[tuple[str, Any]]:
        return [("null", None), ("empty", b""), ("text", "x")]


def test_a_null_header_is_not_an_empty_one() -> None:
    message: Any = Read()
    record = _output_record(message)
    assert record.headers == (("null", None), ("empty", b""), ("text", b"x"))
    assert record.header("null") is None
    assert record.header("empty") == b""
