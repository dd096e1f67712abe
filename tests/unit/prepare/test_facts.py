"""The facts that depend on the option ``tasks``, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.plan.operator import Operator
from tailrace.plan.slots import Capacity, Slots
from tailrace.prepare import facts
from tailrace.prepare.options import RunOptions

TARGET: Any = SimpleNamespace(
    tasks=lambda most, _reads: 24 if most is None else min(24, most),
    sink_facts=lambda: facts.UNKNOWN_TOPIC,
    rights_unknown=set(),
    delivery=lambda *_: None,
)
OWN: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[8]"))
PLAN = Operator("Exchange", 4, (Operator("RealTimeStreamScan", None, ()),))


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = SimpleNamespace(plan=PLAN, refusals=(), tasks=(), windows_s=(), calls=(), pivots=False, microbatch=True)
    monkeypatch.setattr(facts.engine, "examine", lambda *_, **__: examined)
    monkeypatch.setattr(facts.engine, "capacity", lambda _: Capacity(8))
    monkeypatch.setattr(facts.engine, "explicit_settings", lambda _: {})
    monkeypatch.setattr(facts, "await_capacity", lambda *_, **__: Capacity(8))


def slots_of(uncontrolled: str = "", **options: Any) -> Slots | None:
    built: Any = SimpleNamespace(
        name="fraud", writer=None, frame=None, reads=(), microbatch_output="", uncontrolled=uncontrolled
    )
    return facts.gather_facts(TARGET, built, OWN, RunOptions(**options), None, reads=(), reachable=True).slots


def test_shared_tasks_are_counted_and_not_partitions() -> None:
    assert slots_of() == Slots((24, 4))
    assert slots_of(tasks=4) == Slots((4, 4))
    assert slots_of(mode="microbatch", tasks=4) == Slots((24, 4))


def test_a_source_that_is_not_controlled_shares_no_tasks() -> None:
    assert slots_of("Spark 4.4.0 is not one of 4.3.x", tasks=4) == Slots((24, 4))
