"""`tailrace init`: the project that it makes, run as its own README says; the first guide runs its tests."""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import TAILRACE, environment, tailrace
from conftest import wait_until

from tailrace.kafka.broker import temporary_broker


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    created = tailrace("init", "shop", cwd=tmp_path)
    assert created.returncode == 0, created.stderr
    return tmp_path / "shop"


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """A broker of the test's own: the project's topics have the names that others use, too."""
    with temporary_broker(lambda _: None) as broker:
        yield {"TAILRACE_BOOTSTRAP_SERVERS": broker.bootstrap_servers}


def test_the_commands_of_its_readme(shop: Path, env: dict[str, str]) -> None:
    text = (shop / "README.md").read_text()
    commands = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^tailrace .+$", text, re.MULTILINE)]
    start, topic, send, once, read, run, send_more, read_more, read_dead = commands
    assert (start, once, run) == (["broker", "start"], ["run", "pipeline.py", "--once"], ["run", "pipeline.py"])

    for command in (topic, send, once):
        done(shop, env, command)
    key, value = done(shop, env, read).rstrip("\n").split("\t")
    expected = {"id": 1, "card": "ann", "amount": 9000.0, "score": 0.99, "decision": "block"}
    assert (key, json.loads(value)) == ("ann", expected)

    with (shop / "err").open("w") as err:
        process = subprocess.Popen([*TAILRACE, *run], cwd=shop, env=environment(env), stderr=err)
    with process:
        try:
            wait_until(lambda: "Ctrl-C stops it." in (shop / "err").read_text(), 60, "the query has started")
            done(shop, env, send_more)
            decisions = [json.loads(line.partition("\t")[2]) for line in done(shop, env, read_more).splitlines()]
            assert {row["id"]: row["decision"] for row in decisions} == {1: "block", 2: "approve"}
            _, dead, *headers = done(shop, env, read_dead).rstrip("\n").split("\t")
            assert dead == "no JSON"
            assert "tailrace.topic=payments" in headers
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, (shop / "err").read_text()
        finally:
            process.kill()


def done(folder: Path, env: dict[str, str], command: list[str]) -> str:
    """Run a command to its good end; return what it printed."""
    result = tailrace(*command, cwd=folder, env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout
