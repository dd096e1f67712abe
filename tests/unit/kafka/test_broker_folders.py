"""The folders of brokers that were lost are removed, and nothing else."""

from pathlib import Path

import pytest

from tailrace.errors import BrokerAlreadyRunning
from tailrace.kafka import broker


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


def test_a_broker_that_another_process_starts_is_not_started_twice(tmp_path: Path) -> None:
    with broker._locked(tmp_path), pytest.raises(BrokerAlreadyRunning), broker._locked(tmp_path):
        pass
