"""The lock by which a broker is known to run, with several processes looking at once."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.errors import BrokerAlreadyRunning
from tailrace.kafka import broker
from tailrace.kafka.broker import _held_lock, _is_locked


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The folder of a broker that ran and was killed."""
    with _held_lock(tmp_path):
        pass
    return tmp_path


@contextmanager
def during_the_first_lock(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> Iterator[None]:
    """Run something at the moment in which a probe holds its lock."""
    locked = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(broker.fcntl, "flock", locked)
        locked(descriptor, operation)
        then()

    monkeypatch.setattr(broker.fcntl, "flock", flock)
    yield
    assert broker.fcntl.flock is locked, "nothing was locked"


def test_two_probes_at_once_both_see_that_no_broker_runs(monkeypatch: pytest.MonkeyPatch, dead: Path) -> None:
    seen: list[bool] = []
    with during_the_first_lock(monkeypatch, lambda: seen.append(_is_locked(dead))):
        seen.append(_is_locked(dead))
    assert seen == [False, False]


def test_a_running_broker_is_seen_by_every_probe(monkeypatch: pytest.MonkeyPatch, dead: Path) -> None:
    with _held_lock(dead):
        assert [_is_locked(dead), _is_locked(dead)] == [True, True]
        with pytest.raises(BrokerAlreadyRunning), _held_lock(dead):
            pass
    assert not _is_locked(dead)


def test_a_start_waits_for_a_probe_to_end(monkeypatch: pytest.MonkeyPatch, dead: Path) -> None:
    probe = os.open(dead / "running.lock", os.O_RDWR)
    fcntl.flock(probe, fcntl.LOCK_SH)
    monkeypatch.setattr(broker.time, "sleep", lambda _: os.close(probe))
    with _held_lock(dead):
        assert _is_locked(dead)


@pytest.mark.parametrize("link", ["the folder in memory", "a log in it"])
def test_what_a_link_leads_to_is_never_taken_for_a_left_over_log(link: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious" / "own-1-abc" / "data"
    precious.mkdir(parents=True)
    (tmp_path / "precious").chmod(0o700)
    memory = tmp_path / "memory"
    if link == "a log in it":
        memory.mkdir(mode=0o700)
        (memory / "own-1-abc").symlink_to(precious.parent)
    else:
        memory.symlink_to(tmp_path / "precious")
    broker._remove_stale_brokers(tmp_path / "brokers", memory)
    assert precious.is_dir()
