"""What was lost, repeated and reordered: the outputs of a run against those of an undisturbed run. Pure arithmetic.

An output that names its source record is counted by that record. Of several outputs of one record, the content tells
which is which. If a record's contents differ between the two runs, as with ``uuid()``, its outputs are only counted.

An output without a source record, as of an aggregate, is counted by its key: the last content of each key must be the
same in both runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tailrace.chaos.outputs import Numbers, Outputs
from tailrace.measure.traffic.probe import OFFSET_BITS

EXAMPLES = 5
"""How many lost outputs to name."""


@dataclass(frozen=True)
class Account:
    """The outputs of one topic, counted.

    Attributes:
        counted_by: ``record`` or ``key``.
        expected: Outputs of the undisturbed run.
        received: Outputs of the run with faults.
        lost: Outputs missing from the run with faults; if counted by key, keys whose last content differs.
        repeated: Outputs that were written again.
        unexpected: Outputs of records or keys for which the undisturbed run has none.
        changed: Records whose outputs have other contents than in the undisturbed run.
        out_of_order: Records whose first output came after that of a later record with the same key; None if they are
            counted by key.
        lost_origins: The first lost source records, each as one number.
    """

    counted_by: str
    expected: int
    received: int
    lost: int
    repeated: int
    unexpected: int = 0
    changed: int = 0
    out_of_order: int | None = None
    lost_origins: tuple[int, ...] = ()


def account(expected: Outputs, received: Outputs) -> Account:
    """Compare the outputs of one topic with those of an undisturbed run."""
    if expected.have_origins and received.have_origins:
        return by_record(expected, received)
    return by_key(expected, received)


def by_record(expected: Outputs, received: Outputs) -> Account:
    """Count outputs by their source record."""
    origins, places = _numbered(expected.origins, received.origins)
    wanted, got = places[: len(expected)], places[len(expected) :]
    _, contents = _numbered(expected.contents, received.contents)
    pairs, pair_places = _numbered_pairs(places, contents)
    wanted_pairs = np.bincount(pair_places[: len(expected)], minlength=pairs)
    got_pairs = np.bincount(pair_places[len(expected) :], minlength=pairs)
    origin_of_pair = np.zeros(pairs, dtype=np.int64)
    origin_of_pair[pair_places] = places
    count = len(origins)
    wanted_count, got_count = np.bincount(wanted, minlength=count), np.bincount(got, minlength=count)

    is_changed = np.zeros(count, dtype=bool)
    is_changed[origin_of_pair[(got_pairs > 0) & (wanted_pairs == 0)]] = True
    is_unexpected = wanted_count == 0
    is_changed &= ~is_unexpected
    missing, more = _differences(wanted_pairs, got_pairs)
    lost = np.bincount(origin_of_pair, weights=missing, minlength=count).astype(np.int64)
    repeated = np.bincount(origin_of_pair, weights=more, minlength=count).astype(np.int64)
    missing, more = _differences(wanted_count, got_count)
    lost, repeated = np.where(is_changed, missing, lost), np.where(is_changed, more, repeated)
    return Account(
        "record",
        expected=len(expected),
        received=len(received),
        lost=int(lost.sum()),
        repeated=int(repeated[~is_unexpected].sum()),
        unexpected=int(got_count[is_unexpected].sum()),
        changed=int(is_changed.sum()),
        out_of_order=out_of_order(received),
        lost_origins=tuple(int(each) for each in origins[lost > 0][:EXAMPLES]),
    )


def by_key(expected: Outputs, received: Outputs) -> Account:
    """Compare the last output of each key."""
    wanted, got = _last_contents(expected), _last_contents(received)
    pairs, _ = _numbered_pairs(received.keys, received.contents)
    return Account(
        "key",
        expected=len(expected),
        received=len(received),
        lost=sum(got.get(key) != content for key, content in wanted.items()),
        repeated=len(received) - pairs,
        unexpected=len(got.keys() - wanted.keys()),
    )


def out_of_order(received: Outputs) -> int:
    """Count the records whose first output came after that of a later record of the same source partition and key.

    Outputs without a key are compared within their output partition.
    """
    if not len(received):
        return 0
    source_partitions = received.origins >> OFFSET_BITS
    _, lanes = _numbered_pairs(_numbered_pairs(received.partitions, received.keys)[1], source_partitions)
    # The lanes one after the other, so that one running maximum serves all of them.
    places = (lanes << OFFSET_BITS) | (received.origins & ((1 << OFFSET_BITS) - 1))
    places = places[np.argsort(lanes, kind="stable")]
    _, first = np.unique(places, return_index=True)
    firsts = places[np.sort(first)]
    return int(np.count_nonzero(firsts < np.maximum.accumulate(firsts)))


@dataclass(frozen=True)
class Totals:
    """The sums over all output topics."""

    expected: int
    received: int
    lost: int
    repeated: int
    unexpected: int
    changed: int
    out_of_order: int


def totals(accounts: Iterable[Account]) -> Totals:
    """Add up the accounts of several topics."""
    counted = list(accounts)
    return Totals(
        sum(each.expected for each in counted),
        sum(each.received for each in counted),
        sum(each.lost for each in counted),
        sum(each.repeated for each in counted),
        sum(each.unexpected for each in counted),
        sum(each.changed for each in counted),
        sum(each.out_of_order or 0 for each in counted),
    )


def _numbered(*columns: Numbers) -> tuple[Numbers, Numbers]:
    """Return the distinct values of all columns, and the place of each value among them."""
    distinct, places = np.unique(np.concatenate(columns), return_inverse=True)
    return distinct, places.astype(np.int64)


def _numbered_pairs(first: Numbers, second: Numbers) -> tuple[int, Numbers]:
    """Return how many distinct pairs there are, and a number for each pair."""
    _, left = _numbered(first)
    distinct, right = _numbered(second)
    pairs, places = _numbered(left * len(distinct) + right)
    return len(pairs), places


def _differences(wanted: Numbers, got: Numbers) -> tuple[Numbers, Numbers]:
    """Return how many are missing and how many are too many, by place."""
    return np.maximum(wanted - got, 0), np.maximum(got - wanted, 0)


def _last_contents(outputs: Outputs) -> dict[int, int]:
    return dict(zip(outputs.keys.tolist(), outputs.contents.tolist(), strict=True))
