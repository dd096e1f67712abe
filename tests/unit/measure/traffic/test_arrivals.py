from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailrace.measure.traffic.probe import OFFSET_BITS, Arrivals, origin_number, save_arrivals, take_arrivals


def arrivals(*seen: tuple[int, int, int], ready_ns: int | None = 1) -> Arrivals:
    columns = np.array(seen, dtype=np.int64).reshape(-1, 3)
    return Arrivals(columns[:, 0], columns[:, 1], columns[:, 2], ready_ns)


@given(partition=st.integers(0, 2**20), offset=st.integers(0, 2**OFFSET_BITS - 1))
def test_partition_and_offset_make_one_number(partition: int, offset: int) -> None:
    number = origin_number(partition, offset)
    assert divmod(number, 2**OFFSET_BITS) == (partition, offset)
    assert int(np.int64(number)) == number, "it fits into the columns of arrivals"


@given(
    rows=st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 50), st.integers(50, 100))),
    first=st.integers(-5, 20),
    length=st.integers(0, 20),
)
def test_first_arrivals_of_a_range(rows: list[tuple[int, int, int]], first: int, length: int) -> None:
    seen = arrivals(*rows).within(first, first + length)
    kept = [row for row in rows if first <= row[0] < first + length]
    assert seen.numbers.tolist() == [number for number, _, _ in kept]
    firsts = seen.firsts()
    expected: dict[int, tuple[int, int]] = {}
    for number, sent, received in kept:
        expected.setdefault(number, (sent, received))
    assert (
        dict(
            zip(
                firsts.numbers.tolist(),
                zip(firsts.sent_ns.tolist(), firsts.received_ns.tolist(), strict=True),
                strict=True,
            )
        )
        == expected
    )
    assert len(firsts) == len(expected)


def test_latency_is_receipt_minus_intended_send() -> None:
    assert arrivals((1, 100, 130), (2, 110, 115)).latency_ns.tolist() == [30, 5]


def test_loading_arrivals_removes_their_file(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    for ready_ns in (1_763_200_000_000_000_000, None):
        given_away = arrivals((3, 4, 5), (-1, 2, 9), ready_ns=ready_ns)
        save_arrivals(given_away, file)
        taken = take_arrivals(file)
        assert taken.ready_ns == ready_ns
        for name in ("numbers", "sent_ns", "received_ns"):
            assert getattr(taken, name).tolist() == getattr(given_away, name).tolist()
        assert not file.exists()
