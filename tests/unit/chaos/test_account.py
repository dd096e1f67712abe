"""What counts as lost, repeated and out of order."""

from collections.abc import Iterable

import numpy as np
import pytest

from tailrace.chaos.account import Account, account, totals
from tailrace.chaos.outputs import NO_ORIGIN, Outputs
from tailrace.measure.traffic.probe import origin_number


def outputs(rows: Iterable[tuple[int | None, object]], key: object = None, partition: int = 0) -> Outputs:
    """Outputs of the records at these offsets of partition 1, with these contents."""
    given = list(rows)
    origins = [NO_ORIGIN if offset is None else origin_number(1, offset) for offset, _ in given]
    columns = [origins, [hash(content) for _, content in given], [hash(key)] * len(given), [partition] * len(given)]
    return Outputs(*(np.array(column, dtype=np.int64) for column in columns))


def keyed(rows: Iterable[tuple[object, object]]) -> Outputs:
    """Outputs without coordinates: their keys and contents."""
    given = list(rows)
    columns = [
        [NO_ORIGIN] * len(given),
        [hash(row) for row in given],
        [hash(key) for key, _ in given],
        [0] * len(given),
    ]
    return Outputs(*(np.array(column, dtype=np.int64) for column in columns))


def joined(*parts: Outputs) -> Outputs:
    names = ("origins", "contents", "keys", "partitions")
    return Outputs(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def balance(counted: Account) -> int:
    return counted.expected - counted.lost + counted.repeated + counted.unexpected - counted.received


def test_the_same_outputs_once() -> None:
    rows = [(offset, f"row {offset}") for offset in range(5)]
    counted = account(outputs(rows), outputs(rows))
    assert counted == Account("record", 5, 5, lost=0, repeated=0, out_of_order=0)


def test_a_crash_repeats_records_in_order() -> None:
    rows = [(offset, f"row {offset}") for offset in range(6)]
    counted = account(outputs(rows), outputs(rows[:4] + rows[1:]))
    assert (counted.lost, counted.repeated, counted.out_of_order) == (0, 3, 0)
    assert balance(counted) == 0


def test_a_lost_record_is_named() -> None:
    rows = [(offset, f"row {offset}") for offset in range(6)]
    counted = account(outputs(rows), outputs(rows[:2] + rows[4:]))
    assert counted.lost == 2
    assert counted.lost_origins == (origin_number(1, 2), origin_number(1, 3))
    assert balance(counted) == 0


def test_outputs_of_one_record_are_distinguished_by_their_content() -> None:
    expected = outputs([(7, "a"), (7, "b"), (7, "b")])
    counted = account(expected, outputs([(7, "a"), (7, "a"), (7, "b")]))
    assert (counted.lost, counted.repeated, counted.changed) == (1, 1, 0)
    assert balance(counted) == 0


def test_a_record_with_other_contents_is_counted_without_them() -> None:
    expected = outputs([(7, "uuid 1"), (7, "uuid 2"), (8, "same")])
    counted = account(expected, outputs([(7, "uuid 3"), (7, "uuid 4"), (7, "uuid 5"), (8, "same")]))
    assert (counted.lost, counted.repeated, counted.changed) == (0, 1, 1)
    assert balance(counted) == 0


def test_an_output_of_a_record_that_should_have_none() -> None:
    counted = account(outputs([(1, "a")]), outputs([(1, "a"), (2, "b"), (2, "b")]))
    assert (counted.lost, counted.repeated, counted.unexpected) == (0, 0, 2)
    assert balance(counted) == 0


def test_a_late_first_output_is_out_of_order() -> None:
    rows = [(offset, f"row {offset}") for offset in range(5)]
    late = [rows[0], rows[2], rows[3], rows[1], rows[4]]
    assert account(outputs(rows), outputs(late)).out_of_order == 1


def test_order_counts_only_within_a_key_and_a_source_partition() -> None:
    late = joined(outputs([(3, "x")], key="one"), outputs([(1, "y")], key="two"))
    assert account(late, late).out_of_order == 0
    without_key = joined(outputs([(3, "x")], partition=0), outputs([(1, "y")], partition=1))
    assert account(without_key, without_key).out_of_order == 0
    same = joined(outputs([(3, "x")], key="one"), outputs([(1, "y")], key="one"))
    assert account(same, same).out_of_order == 1


def test_outputs_without_coordinates_are_counted_by_the_last_one_of_each_key() -> None:
    expected = keyed([("a", 3), ("b", 1), ("c", 9)])
    received = keyed([("a", 1), ("a", 2), ("b", 1), ("a", 2), ("a", 3), ("d", 1)])
    counted = account(expected, received)
    assert counted == Account("key", 3, 6, lost=1, repeated=1, unexpected=1, out_of_order=None)


def test_a_wrong_last_output_of_a_key_is_lost() -> None:
    assert account(keyed([("a", 3)]), keyed([("a", 3), ("a", 2)])).lost == 1


@pytest.mark.parametrize("rows", [[], [(1, "a")]])
def test_nothing_received(rows: list[tuple[int | None, object]]) -> None:
    counted = account(outputs(rows), outputs([]))
    assert (counted.lost, counted.received, counted.out_of_order) == (len(rows), 0, 0)


def test_totals_add_up_topics() -> None:
    one = Account("record", 5, 6, lost=1, repeated=2, out_of_order=3)
    two = Account("key", 1, 2, lost=1, repeated=1, unexpected=4)
    added = totals([one, two])
    assert (added.expected, added.received, added.lost, added.repeated) == (6, 8, 2, 3)
    assert (added.unexpected, added.out_of_order) == (4, 3)
