"""Dead letters as the engine writes them."""

from typing import Any

from tailrace.dead_letters.letter import Letter
from tailrace.frames.names import Header
from tailrace.kafka.records import TopicRecord

TIME_MS = 1_790_000_000_123


def record(place: int = 12, *, place_partition: int = 0, before: Any = (), **changes: object) -> TopicRecord:
    """Return a record of the dead-letter topic.

    ``changes`` are its key and value, and values of Tailrace's headers; None means no such header.
    """
    key, value = changes.pop("key", b"k"), changes.pop("value", b"oops")
    assert key is None or isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    texts: dict[str, object] = {
        "topic": "orders",
        "partition": 1,
        "offset": 57,
        "event_time": TIME_MS - 5000,
        "id": "7f1c2f4e:0:r:0",
        "reason": "not_json",
        "error": "Unexpected end-of-input",
        "pipeline": "shop",
        "time": TIME_MS,
        "attempt": 1,
    }
    texts |= changes
    assert set(texts) == {header.value.partition(".")[2] for header in Header}
    added = [(f"tailrace.{name}", str(text).encode()) for name, text in texts.items() if text is not None]
    return TopicRecord("shop.dead-letters", place_partition, place, key, value, (*before, *added))


def letter(place: int = 12, **changes: Any) -> Letter:
    """Return a letter; see `record`."""
    parsed = Letter.of(record(place, **changes))
    assert parsed is not None
    return parsed
