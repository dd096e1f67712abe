"""`tailrace demo`: every lane measured, nothing left running, whatever ends it."""

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import TAILRACE, environment, tailrace
from conftest import kill_marked, marked_processes, wait_until

LANE = {"p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms", "samples", "lost", "duplicated"}


@pytest.fixture
def mark() -> Iterator[str]:
    text = f"tailrace-test-{secrets.token_hex(8)}"
    yield text
    kill_marked(text)


def test_every_lane_is_measured_and_nothing_is_lost(tmp_path: Path, mark: str) -> None:
    arguments = ["demo", "--json", "--seconds", "3", "--warmup", "1", "--rate", "400"]
    result = tailrace(*arguments, cwd=tmp_path, env={"TAILRACE_TEST_MARK": mark}, timeout_s=180)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert set(report) == {"lanes"}
    assert set(report["lanes"]) == {"floor", "microbatch", "realtime"}
    for lane in report["lanes"].values():
        assert set(lane) == LANE
        assert lane["samples"] == 1200
        assert lane["lost"] == 0
        assert lane["duplicated"] == 0
        assert 0 < lane["p50_ms"] <= lane["p95_ms"] <= lane["max_ms"]
    assert "Exception" not in result.stderr
    assert not marked_processes(mark)
    assert not list(tmp_path.iterdir()), "it leaves nothing in the user's folder"


@pytest.mark.parametrize(
    ("moment", "end"),
    [
        ("Starting a temporary Kafka broker", signal.SIGKILL),
        ("Kafka alone warming up", signal.SIGINT),
        ("real time warming up", signal.SIGKILL),
    ],
)
def test_nothing_is_alive_after_it_was_ended(tmp_path: Path, mark: str, moment: str, end: signal.Signals) -> None:
    err = tmp_path / "err"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with err.open("w") as out:
        demo = subprocess.Popen(
            [*TAILRACE, "demo", "--seconds", "1", "--warmup", "1", "--rate", "200"],
            cwd=tmp_path,
            env=environment({"TAILRACE_TEST_MARK": mark, "TMPDIR": str(temporary)}),
            stderr=out,
            stdout=subprocess.DEVNULL,
            # A shell makes its background jobs deaf to Ctrl-C, and so would be everything that they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    with demo:
        wait_until(lambda: moment in " ".join(err.read_text().split()), 90, f"{moment!r} in its output")
        assert marked_processes(mark)
        demo.send_signal(end)
        code = demo.wait(30)
    assert code == (-signal.SIGKILL if end is signal.SIGKILL else 130)
    wait_until(lambda: not marked_processes(mark), 10, "no broker, JVM or Python process of it is alive")
    assert "Traceback" not in err.read_text()
    assert not [left.name for left in temporary.iterdir() if left.name.startswith("tailrace")]
