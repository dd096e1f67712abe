from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tailrace import engine
from tailrace.errors import QueryFailed
from tailrace.running import query as running
from tailrace.running.confirm import confirm

from .fakes import FakeCheckpoint, FakeQuery
from .test_query import run


def test_a_jvm_that_dies_while_a_query_starts_is_an_error_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_query: Any) -> bool:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(engine, "has_running_tasks", lose)
    checkpoint = FakeCheckpoint()
    with pytest.raises(QueryFailed, match="Spark's JVM ended while query 'fraud' ran"):
        confirm(run(FakeQuery(), checkpoint=checkpoint))
    assert not checkpoint.held


class LoadingFunctions:
    """Python functions that are loaded at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    def are_loaded(self, _query: Any) -> bool:
        self.looks += 1
        return self.looks >= 3


def test_a_start_waits_until_python_functions_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "has_running_tasks", lambda _: True)
    monkeypatch.setattr(engine, "runs_in_real_time", lambda _: True)
    functions = LoadingFunctions()
    confirm(run(FakeQuery(), costs=functions))
    assert functions.looks == 3


def test_a_query_that_ends_while_its_functions_are_loaded_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    query = FakeQuery()
    monkeypatch.setattr(engine, "has_running_tasks", lambda _: True)
    monkeypatch.setattr(engine, "runs_in_real_time", lambda _: True)
    monkeypatch.setattr(running, "failure_text", lambda _: None)
    functions = LoadingFunctions()
    functions.looks = -(10**6)
    query.isActive = False
    with pytest.raises(QueryFailed, match="while its Python functions were loading"):
        confirm(run(query, costs=functions))


@pytest.mark.parametrize("saw_tasks", [False, True])
def test_a_bounded_run_with_little_to_read_may_end_before_it_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, saw_tasks: bool
) -> None:
    monkeypatch.setattr(engine, "has_running_tasks", lambda _: saw_tasks)
    monkeypatch.setattr(engine, "runs_in_real_time", lambda _: True)
    monkeypatch.setattr(running, "failure_text", lambda _: None)
    functions = LoadingFunctions()
    functions.looks = -(10**6)
    query = FakeQuery()
    query.isActive = False
    bounded = run(query, costs=functions)
    bounded.bounded = True
    confirm(bounded)
    bounded.bounded = False
    with pytest.raises(QueryFailed, match="ended"):
        confirm(bounded)
