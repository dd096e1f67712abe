from collections.abc import Callable
from typing import Any

import pytest

from tailrace.dead_letters import to_source
from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.to_source import ToSource
from tailrace.errors import KafkaError
from tailrace.kafka.records import ANY_PARTITION, NewRecord

from .letters import letter, record


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[NewRecord]:
    """What was sent; the value ``refuse`` is refused."""
    records: list[NewRecord] = []

    class FakeSender:
        def __init__(self, _config: object, *, resends: bool) -> None:
            assert resends
            self.refused = False

        def send(self, new: NewRecord, on_accepted: Callable[[], object]) -> bool:
            self.refused = self.refused or new.value == b"refuse"
            if not self.refused:
                records.append(new)
                on_accepted()
            return not self.refused

        def finish(self) -> None:
            if self.refused:
                raise KafkaError("refused one")

    monkeypatch.setattr(to_source, "RecordSender", FakeSender)
    monkeypatch.setattr(to_source, "partition_counts", lambda _, topics: dict.fromkeys(topics, 2))
    return records


def test_the_original_record_is_sent_with_all_headers(sent: list[NewRecord]) -> None:
    done: list[Letter] = []
    original: Any = record(before=[("trace", b"t"), ("null", None)], value=None)
    it = Letter.of(original)
    assert it is not None
    ToSource({}).replay([it], done.append)
    assert sent == [NewRecord("orders", None, b"k", original.headers, 1)]
    assert done == [it]


def test_a_partition_that_is_gone_is_chosen_by_key(sent: list[NewRecord]) -> None:
    ToSource({}).replay([letter(partition=1), letter(partition=7)], lambda _: None)
    assert [each.partition for each in sent] == [1, ANY_PARTITION]


def test_only_accepted_letters_are_done(sent: list[NewRecord]) -> None:
    done: list[Letter] = []
    letters = [letter(1), letter(2, value=b"refuse"), letter(3)]
    with pytest.raises(KafkaError):
        ToSource({}).replay(letters, done.append)
    assert [each.record.offset for each in done] == [1]
