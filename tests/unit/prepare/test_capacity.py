"""Slots are counted when the executors of a cluster have registered, on a clock that the test moves."""

from collections.abc import Mapping

import pytest

from tailrace.plan.slots import Capacity
from tailrace.prepare import capacity
from tailrace.prepare.capacity import await_capacity


class Spark:
    """A Spark whose slots change at given times."""

    def __init__(self, changes: Mapping[float, Capacity]) -> None:
        self._changes = changes
        self.now = 0.0

    def ask(self) -> Capacity:
        return self._changes[max(at for at in self._changes if at <= self.now)]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("changes", "on_cluster", "slots", "after_s"),
    [
        pytest.param({0: Capacity(6)}, True, 6, 0, id="all are there"),
        pytest.param({0: Capacity(0), 2: Capacity(4), 3: Capacity(8)}, True, 8, 3, id="two executors come"),
        pytest.param({0: Capacity(0), 2: Capacity(4)}, True, 4, 7, id="one executor is all"),
        pytest.param({0: Capacity(0)}, True, 0, 30, id="no executor comes"),
        pytest.param({0: Capacity(4)}, False, 4, 0, id="local mode has what it has"),
        pytest.param({0: Capacity(6, taken=6), 1: Capacity(6)}, False, 6, 1, id="a stopped query lets go"),
        pytest.param({0: Capacity(6, taken=6)}, False, 6, 3, id="another query runs"),
    ],
)
def test_slots_are_counted_when_no_more_are_expected(
    monkeypatch: pytest.MonkeyPatch, changes: Mapping[float, Capacity], on_cluster: bool, slots: int, after_s: float
) -> None:
    spark = Spark(changes)
    monkeypatch.setattr(capacity, "time", spark)
    assert await_capacity(spark.ask, 6, on_cluster=on_cluster).slots == slots
    assert spark.now == pytest.approx(after_s, abs=0.2)
