"""Bad input at the command line: one clear sentence, the way out, nothing lost and no stack trace."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from commands import PIPELINE, assert_told, tailrace
from conftest import Kafka

from tailrace.kafka.ports import free_ports
from tailrace.toolchain import cache_dir, read_lock


@pytest.fixture
def project(tmp_path: Path, kafka: Kafka) -> Path:
    """A folder with a sound pipeline between two topics that exist."""
    text = PIPELINE.format(name="cards", source=kafka.topic("payments"), sink=kafka.topic("decisions"))
    (tmp_path / "cards.py").write_text(text)
    return tmp_path


def test_missing_topic_with_the_nearest_name(project: Path, kafka: Kafka) -> None:
    there = kafka.topic("invoices")
    asked = there[:-1]
    (project / "bad.py").write_text(PIPELINE.format(name="cards", source=asked, sink=there))
    result = tailrace("run", "bad.py", "--bootstrap-servers", kafka.bootstrap_servers, cwd=project)
    assert_told(result, "TOPIC_MISSING", 2)
    assert f"topic '{asked}' does not exist" in result.stderr
    assert f"did you mean '{there}'?" in result.stderr


def test_missing_sink_topic(project: Path, kafka: Kafka) -> None:
    (project / "bad.py").write_text(PIPELINE.format(name="cards", source=kafka.created[0], sink="nowhere"))
    result = tailrace("run", "bad.py", "--bootstrap-servers", kafka.bootstrap_servers, cwd=project)
    assert_told(result, "TOPIC_MISSING", 2)
    assert "topic 'nowhere' does not exist" in result.stderr


def test_unreachable_broker_is_known_soon(project: Path) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    # 3 s on a machine that does nothing else; a client of Kafka would wait for a minute by default.
    result = tailrace("run", "cards.py", "--bootstrap-servers", nobody, cwd=project, timeout_s=40)
    assert_told(result, "BROKER_UNREACHABLE", 2)
    assert nobody in result.stderr


def test_no_broker_named(project: Path) -> None:
    home = project / "home"
    result = tailrace("run", "cards.py", cwd=project, env={"TAILRACE_HOME": str(home)})
    assert_told(result, "BROKER_UNNAMED", 2)
    assert "tailrace broker start" in result.stderr


def test_broker_from_the_environment(project: Path) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    result = tailrace("run", "cards.py", cwd=project, env={"TAILRACE_BOOTSTRAP_SERVERS": nobody})
    assert_told(result, "BROKER_UNREACHABLE", 2)
    assert nobody in result.stderr


def test_unwritable_checkpoint_folder(project: Path, kafka: Kafka) -> None:
    (project / "file").write_text("in the way")
    result = tailrace(
        "run",
        "cards.py",
        "--bootstrap-servers",
        kafka.bootstrap_servers,
        "--checkpoint",
        "file/checkpoint",
        cwd=project,
    )
    assert_told(result, "CHECKPOINT_UNWRITABLE", 1)
    assert str(project / "file" / "checkpoint") in result.stderr


def test_checkpoint_of_another_query(project: Path, kafka: Kafka) -> None:
    folder = project / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"b2b6ce0e-56b5-4cb5-b5d0-6d3d1d0ed0a4"}')
    (folder / "tailrace.json").write_text(json.dumps({"name": "invoices", "topics": ["bills"], "sink": "paid"}))
    result = tailrace(
        "run", "cards.py", "--bootstrap-servers", kafka.bootstrap_servers, "--checkpoint", str(folder), cwd=project
    )
    assert_told(result, "CHECKPOINT_FOREIGN", 1)
    assert "belongs to query 'invoices'" in result.stderr


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("nothing.py", "x = 1\n", "defines no pipeline"),
        ("missing.py", None, "there is no file missing.py"),
        ("notes.txt", "hello\n", "there is no module 'notes.txt'"),
    ],
)
def test_a_file_that_is_no_pipeline(tmp_path: Path, file: str, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / file).write_text(content)
    result = tailrace("run", file, cwd=tmp_path)
    assert_told(result, "PIPELINE_NOT_FOUND", 2)
    assert says in result.stderr


def test_an_exception_while_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import tailrace\n\n\nraise ValueError('no such table')\n")
    result = tailrace("run", "bad.py", cwd=tmp_path)
    assert_told(result, "USER_CODE_FAILED", 1)
    assert "bad.py line 4" in result.stderr
    assert "no such table" in result.stderr
    verbose = tailrace("run", "bad.py", "--verbose", cwd=tmp_path)
    assert "Traceback (most recent call last)" in verbose.stderr


def test_an_exception_in_the_function_names_its_line(project: Path, kafka: Kafka) -> None:
    text = (project / "cards.py").read_text().replace('"amount > 10"', '"amuont > 10"')
    (project / "cards.py").write_text(text)
    result = tailrace("run", "cards.py", "--bootstrap-servers", kafka.bootstrap_servers, cwd=project)
    assert_told(result, "USER_CODE_FAILED", 1)
    assert "cards.py line 6 in decide" in result.stderr
    assert "amuont" in result.stderr


def test_port_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = tailrace(
            "broker", "start", "--name", f"taken-{os.getpid()}", "--port", str(port), cwd=tmp_path, env=_home(tmp_path)
        )
    assert_told(result, "PORT_TAKEN", 2)
    assert str(port) in result.stderr


def test_corrupted_jar_and_how_it_is_mended(tmp_path: Path) -> None:
    env = _home(tmp_path) | {"TAILRACE_CLASS_ARCHIVE": "off"}  # written for these jars alone, it would take a minute
    jars = tmp_path / "home" / "cache" / "jars"
    shutil.copytree(cache_dir() / "jars", jars)
    if (cache_dir() / "java").exists():  # a machine without a Java of its own has obtained one
        (jars.parent / "java").symlink_to(cache_dir() / "java")
    victim = next(jar for jar in read_lock() if jar.artifact == "kafka-clients" and jar.set_name == "broker")
    path = jars / victim.file_name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    result = tailrace("broker", "start", cwd=tmp_path, env=env)
    assert_told(result, "JAR_CORRUPT", 2)
    assert victim.file_name in result.stderr or victim.coordinate in result.stderr
    assert "tailrace doctor --fix" in result.stderr
    seen = tailrace("doctor", "--json", cwd=tmp_path, env=env)
    assert seen.returncode == 1
    assert json.loads(seen.stdout)["ok"] is False
    mended = tailrace("doctor", "--fix", "--json", cwd=tmp_path, env=env)
    assert mended.returncode == 0, mended.stderr
    assert json.loads(mended.stdout)["ok"] is True


def test_unusable_java(tmp_path: Path) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    result = tailrace("broker", "start", cwd=tmp_path, env=_home(tmp_path) | {"JAVA_HOME": str(home)})
    assert_told(result, "JAVA_UNUSABLE", 2)
    assert str(home) in result.stderr


def test_a_checkpoint_interval_that_spark_would_refuse(project: Path) -> None:
    result = tailrace("run", "cards.py", "--checkpoint-every", "2s", cwd=project)
    assert_told(result, "DURATION_INVALID", 2)
    assert "records are written as they arrive, not at the next checkpoint" in result.stderr


def _home(folder: Path) -> dict[str, str]:
    return {"TAILRACE_HOME": str(folder / "home")}
