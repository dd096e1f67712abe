import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.measure.traffic.records import KEYS, event, event_maker, smallest_payload

NOW = 1_763_200_000_000_000_000
SEQUENCES = st.integers(-(10**9) + 1, 10**10 - 1)
PAYLOADS = st.integers(smallest_payload(), 4096)


@given(number=SEQUENCES, payload=PAYLOADS, sent_ns=st.integers(0, 9 * 10**18))
def test_an_event_has_its_size_and_content_by_number(number: int, payload: int, sent_ns: int) -> None:
    key, value = event_maker(payload)(number, sent_ns)
    assert len(value) == payload
    record = json.loads(value)
    assert list(record) == ["id", "key", "amount", "sent_ns", "pad"]
    assert (record["id"], record["sent_ns"]) == (number, sent_ns)
    assert (record["key"], record["amount"]) == (event(number).key, event(number).amount)
    assert key.decode() == record["key"]
    assert isinstance(record["amount"], float)
    assert set(record["pad"]) <= {"x"}


def test_the_smallest_payload_cannot_be_smaller() -> None:
    longest = max(len(event_maker(0)(number, NOW)[1]) for number in range(10**10 - 5000, 10**10))
    assert longest == smallest_payload()


@given(number=SEQUENCES)
def test_every_event_passes_the_filter_and_the_join(number: int) -> None:
    content = event(number)
    assert 0 <= content.amount < 1000
    assert content.key == f"k-{int(content.key.removeprefix('k-')):04d}"
    assert int(content.key.removeprefix("k-")) < KEYS


def test_keys_are_spread_evenly_and_amounts_vary() -> None:
    contents = [event(number) for number in range(50_000)]
    counts = Counter(content.key for content in contents)
    assert len(counts) == KEYS
    assert max(counts.values()) < 2 * min(counts.values())
    assert len({content.amount for content in contents}) > 30_000
