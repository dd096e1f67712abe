"""The development broker: real Kafka that comes up quickly, stays as long as it should and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import environment, tailrace
from conftest import Kafka, marked_processes, wait_until

from tailrace.kafka.ports import free_ports, is_taken


def broker(own_home: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return tailrace("broker", *arguments, cwd=Path(own_home["TAILRACE_HOME"]), env=own_home)


def start(own_home: dict[str, str], *arguments: str) -> dict[str, Any]:
    result = broker(own_home, "start", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def status(own_home: dict[str, str]) -> list[dict[str, Any]]:
    return list(json.loads(broker(own_home, "status", "--json").stdout)["brokers"])


def test_life_of_a_broker_started_by_hand(own_home: dict[str, str]) -> None:
    port = free_ports(1)[0]
    first = start(own_home, "--port", str(port))
    assert first["bootstrap_servers"] == f"127.0.0.1:{port}"
    assert start(own_home)["pid"] == first["pid"], "a second start finds the running one"
    other = start(own_home, "--name", "other")
    assert [each["name"] for each in status(own_home)] == ["default", "other"]

    created = broker(own_home, "topic", "kept", "--partitions", "3")
    assert created.returncode == 0, created.stderr
    assert "already exists" in broker(own_home, "topic", "kept", "--partitions", "3").stderr
    assert "[TOPIC_EXISTS]" in broker(own_home, "topic", "kept", "--partitions", "4").stderr
    assert next(each for each in status(own_home) if each["name"] == "default")["topics"] == {"kept": 3}

    # kill -9: the stale files it leaves are no obstacle, and the data is still there.
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: len(status(own_home)) == 1, 10, "the killed broker is no longer listed")
    assert start(own_home)["pid"] != first["pid"]
    assert next(each for each in status(own_home) if each["name"] == "default")["topics"] == {"kept": 3}

    assert broker(own_home, "stop").returncode == 0
    start(own_home, "--fresh")
    assert next(each for each in status(own_home) if each["name"] == "default")["topics"] == {}, "as asked"

    for name in ("default", "other"):
        assert broker(own_home, "stop", "--name", name, "--discard").returncode == 0
    assert status(own_home) == []
    assert not is_taken(int(other["port"]))
    assert "[BROKER_NOT_RUNNING]" in broker(own_home, "stop").stderr
    assert not list((Path(own_home["TAILRACE_HOME"]) / "state" / "brokers").iterdir()), "discarded data is gone"


def test_a_broker_that_cannot_start_shows_its_own_error(own_home: dict[str, str]) -> None:
    start(own_home)
    assert broker(own_home, "stop").returncode == 0
    meta = Path(own_home["TAILRACE_HOME"]) / "state" / "brokers" / "default" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=77"))
    result = broker(own_home, "start")
    assert result.returncode == 2
    assert "[BROKER_START_FAILED]" in result.stderr
    assert "77" in result.stderr, "Kafka's own reason"
    assert "--fresh" in result.stderr


OWNER = """\
import sys
from pathlib import Path
from tailrace.kafka.broker import temporary_broker
broker = temporary_broker(lambda _: None, memory=Path(sys.argv[1]))
print(broker.bootstrap_servers, flush=True)
sys.stdin.read()
broker.stop()
"""


@pytest.mark.parametrize("end", ["kill -9", "end"])
def test_a_program_s_broker_ends_with_the_program(own_home: dict[str, str], end: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "own-1-left-over").mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(elsewhere)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(own_home),
        text=True,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner:
        address = owner.stdout.readline().strip()
        assert is_taken(int(address.rpartition(":")[2]))
        assert [each["owner"] for each in status(own_home)] == ["program"]
        (log,) = elsewhere.iterdir()
        assert (log / "meta.properties").exists(), "its log is there, and what another one left is not"
        if end == "kill -9":
            owner.kill()
        else:
            owner.stdin.close()
        owner.wait(30)
    wait_until(lambda: not marked_processes(own_home["TAILRACE_TEST_MARK"]), 10, "nothing of it is alive")
    wait_until(
        lambda: not list((Path(own_home["TAILRACE_HOME"]) / "state" / "brokers").iterdir()), 5, "its folder is gone"
    )
    wait_until(lambda: not list(elsewhere.iterdir()), 5, "its log is gone")


def test_it_listens_on_loopback_alone(kafka: Kafka) -> None:
    ours = {int(kafka.bootstrap_servers.rpartition(":")[2])}
    listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True)
    addresses = [line.split()[1] for line in listening.stdout.splitlines() if " 0A " in line]
    hosts = {address.split(":")[0] for address in addresses if int(address.split(":")[1], 16) in ours}
    # 127.0.0.1 in the kernel's notation, or the same inside IPv6.
    assert hosts <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert hosts


def test_status_without_a_broker(own_home: dict[str, str]) -> None:
    assert "no broker is running" in broker(own_home, "status").stderr
