import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from tailrace.errors import BrokerUnnamed, OptionRefused
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.kafka.broker import BrokerRecord, find_broker, running_brokers


@contextmanager
def broker(home: Path, name: str, port: int, owner: str = "hand") -> Iterator[None]:
    """All that shows a running broker: its record, and the lock that its process would hold."""
    folder = home / "state" / "brokers" / name
    folder.mkdir(parents=True, exist_ok=True)
    record = BrokerRecord(name, 1, port, port + 1, owner, str(folder))
    (folder / "broker.json").write_text(json.dumps(asdict(record)))
    with (folder / "running.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_the_given_address_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", "environment:1")
    with broker(home, "default", 9001):
        assert resolve_bootstrap_servers("given:1") == "given:1"


def test_the_environment_wins_over_a_running_broker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", "environment:1")
    with broker(home, "default", 9001):
        assert resolve_bootstrap_servers(None) == "environment:1"


def test_the_only_running_broker_is_used(home: Path) -> None:
    with broker(home, "mine", 9003):
        assert resolve_bootstrap_servers(None) == "127.0.0.1:9003"


def test_the_default_broker_wins_over_others(home: Path) -> None:
    with broker(home, "another", 9003), broker(home, "default", 9001):
        assert resolve_bootstrap_servers(None) == "127.0.0.1:9001"


def test_several_running_brokers_are_an_error_with_their_names(home: Path) -> None:
    with broker(home, "one", 9001), broker(home, "two", 9003), pytest.raises(BrokerUnnamed) as refused:
        resolve_bootstrap_servers(None)
    assert "one, two" in refused.value.what
    assert "127.0.0.1:9001" in refused.value.fix


def test_a_broker_of_a_program_is_not_used(home: Path) -> None:
    with broker(home, "own-1-abc", 9001, owner="program"), pytest.raises(BrokerUnnamed, match="no development broker"):
        resolve_bootstrap_servers(None)


def test_a_broker_that_has_ended_is_not_used(home: Path) -> None:
    with broker(home, "default", 9001):
        assert find_broker("default") is not None
    assert find_broker("default") is None
    assert running_brokers() == []
    with pytest.raises(BrokerUnnamed) as refused:
        resolve_bootstrap_servers(None)
    assert "tailrace broker start" in refused.value.fix


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_unreadable_record_is_skipped(home: Path, content: str) -> None:
    with broker(home, "broken", 9001), broker(home, "fine", 9003):
        (home / "state" / "brokers" / "broken" / "broker.json").write_text(content)
        assert [record.name for record in running_brokers()] == ["fine"]
        assert resolve_bootstrap_servers(None) == "127.0.0.1:9003"


@pytest.mark.parametrize("name", ["", "..", "a/b", "../../etc", "x" * 65])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(OptionRefused):
        find_broker(name)
