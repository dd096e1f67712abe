from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tailrace import engine
from tailrace.errors import QueryFailed
from tailrace.runtime.confirm import confirm

from .test_running import FakeCheckpoint, FakeQuery, run


def test_a_jvm_that_dies_while_a_query_starts_is_told_in_the_users_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_query: Any) -> bool:
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(engine, "has_running_tasks", lose)
    checkpoint = FakeCheckpoint()
    with pytest.raises(QueryFailed, match="Spark's JVM ended while query 'fraud' ran"):
        confirm(run(FakeQuery(), checkpoint=checkpoint))
    assert not checkpoint.held
