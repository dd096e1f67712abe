"""Run the README's pipeline and commands unchanged."""

import re
import signal
import subprocess
from pathlib import Path

from commands import TAILRACE, environment, tailrace
from conftest import Kafka, wait_until

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_pipeline_and_the_commands_of_the_readme(kafka: Kafka, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", README, re.DOTALL)
    assert [name for name, _ in blocks] == ["fraud.py"]
    (tmp_path / "fraud.py").write_text(blocks[0][1])
    commands = [line.partition("#")[0].split() for line in re.findall(r"^tailrace [^\n|`]+$", README, re.MULTILINE)]
    assert [command[1] for command in commands] == ["broker", "broker", "run", "run"]
    env = {"TAILRACE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    created = tailrace(*commands[1][1:], cwd=tmp_path, env=env)
    assert created.returncode == 0, created.stderr
    for number, command in enumerate(commands[2:]):
        err = tmp_path / f"err-{number}"
        with err.open("w") as words:
            process = subprocess.Popen(
                [*TAILRACE, *command[1:]],
                cwd=tmp_path,
                env=environment(env),
                stderr=words,
            )
        with process:
            try:
                wait_until(lambda path=err: "Ctrl-C stops it." in path.read_text(), 60, "the query has started")
                _send_until_decided(kafka, number)
                process.send_signal(signal.SIGINT)
                assert process.wait(30) == 0, err.read_text()
            finally:
                process.kill()


def _send_until_decided(kafka: Kafka, number: int) -> None:
    """Send until a decision arrives: the pipeline skips records sent before it read the end offsets."""
    expected = ("c", {"id": number, "card": "c", "amount": 5000.0, "risk": 0.5, "decision": "review"})
    for _ in range(30):
        kafka.send("payments", [{"id": number, "card": "c", "amount": 5000.0}])
        try:
            kafka.receive("decisions", lambda seen: expected in seen, timeout_s=1)
        except AssertionError:
            continue
        return
    raise AssertionError("no decision came")
