from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.errors import BrokerUnreachable
from tailrace.measure import place
from tailrace.measure.place import bench_place


@pytest.mark.parametrize(("memory", "told"), [(Path("memory"), "in memory"), (None, "on disk")])
def test_a_broker_of_its_own_is_gone_afterwards(
    memory: Path | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    homes: list[Path | None] = []

    @contextmanager
    def temporary_broker(_announce: Any, memory: Path | None) -> Iterator[Any]:
        homes.append(memory)
        yield SimpleNamespace(bootstrap_servers="127.0.0.1:5", scratch=tmp_path, pid=42)
        notes.append("gone")

    monkeypatch.setattr(place, "temporary_broker", temporary_broker)
    monkeypatch.setattr(place, "memory_dir", lambda: nullcontext(memory))
    said: list[str] = []
    with bench_place(None, 4, said.append) as bench:
        assert (bench.bootstrap_servers, bench.partitions, bench.scratch, bench.broker_pid) == (
            "127.0.0.1:5", 4, tmp_path, 42,
        )  # fmt: skip
        assert bench.client["bootstrap.servers"] == "127.0.0.1:5"
        assert (homes, bench.broker_log) == ([memory], told)
        assert notes == []
    assert notes == ["gone"]
    assert said == ["Starting a Kafka broker of its own ..."]


def test_a_users_broker_is_asked_first_and_the_folder_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(place, "list_topics", asked.append)
    with bench_place("kafka:9092", 2, lambda _: None) as bench:
        assert bench.broker_pid is None, "somebody else's process"
        assert bench.folder("lane").is_dir()
        assert bench.folder("lane") != bench.folder("lane")
    assert not bench.scratch.exists()
    assert asked[0]["bootstrap.servers"] == "kafka:9092"


def test_a_users_broker_that_does_not_answer_is_told_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: Any) -> None:
        raise BrokerUnreachable("no broker answers at kafka:9092")

    monkeypatch.setattr(place, "list_topics", refuse)
    with pytest.raises(BrokerUnreachable), bench_place("kafka:9092", 2, lambda _: None):
        pytest.fail("nothing may begin")
