"""`tailrace broker send` and `read`: what goes into a topic by hand comes out of it by hand."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import TAILRACE, assert_told, environment, tailrace
from confluent_kafka import Producer
from conftest import Kafka, wait_until

from tailrace.kafka.ports import free_ports


@pytest.fixture
def env(kafka: Kafka) -> dict[str, str]:
    return {"TAILRACE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}


def done(result: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert result.returncode == 0, result.stderr
    return result


def test_records_as_arguments_come_back(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    topic = kafka.topic("by-hand", partitions=1)
    sent = done(tailrace("broker", "send", topic, '{"id": 1}', "grün", "--key", "k", cwd=tmp_path, env=env))
    assert (sent.stdout, sent.stderr) == ("", f"2 records sent to {topic}\n")
    done(tailrace("broker", "send", topic, "", cwd=tmp_path, env=env))
    read = done(tailrace("broker", "read", topic, cwd=tmp_path, env=env))
    assert (read.stdout, read.stderr) == ('k\t{"id": 1}\nk\tgrün\n\t\n', "")
    first = done(tailrace("broker", "read", topic, "--count", "1", cwd=tmp_path, env=env))
    assert first.stdout == 'k\t{"id": 1}\n'


def test_lines_of_standard_input_are_sent_and_all_partitions_are_read(
    kafka: Kafka, env: dict[str, str], tmp_path: Path
) -> None:
    topic = kafka.topic("lines", partitions=3)
    lines = [f'{{"id": {number}}}' for number in range(5000)]
    sent = subprocess.run(
        [*TAILRACE, "broker", "send", topic],
        input="\n".join(lines) + "\n\n",
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sent.stderr == f"5,000 records sent to {topic}\n"
    read = done(tailrace("broker", "read", topic, cwd=tmp_path, env=env)).stdout.splitlines()
    assert sorted(read) == sorted(f"\t{line}" for line in lines)


def test_a_key_goes_to_the_partition_that_spark_would_choose(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    topic = kafka.topic("keys", partitions=5)
    # The hashes that Kafka's own tests expect of Java's clients, modulo 5.
    expected = {"21": 0, "foobar": 1, "abc": 2}
    for key in expected:
        done(tailrace("broker", "send", topic, "v", "--key", key, cwd=tmp_path, env=env))
    read = done(tailrace("broker", "read", topic, "--json", cwd=tmp_path, env=env)).stdout.splitlines()
    assert {record["key"]: record["partition"] for record in map(json.loads, read)} == expected


def test_any_bytes_and_headers_are_shown(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    topic = kafka.topic("odd", partitions=1)
    producer = Producer(kafka.config)
    producer.produce(topic, b"\xff\nx", key=b"\xfe", headers=[("a", b"1"), ("a", b"\xfd"), ("none", None)])
    producer.produce(topic, None, key=b"gone")
    assert producer.flush(20) == 0
    lines = done(tailrace("broker", "read", topic, "--headers", cwd=tmp_path, env=env)).stdout
    assert lines == "\\xfe\t\\xff\\nx\ta=1\ta=\\xfd\tnone\ngone\t\n"
    objects = done(tailrace("broker", "read", topic, "--json", cwd=tmp_path, env=env)).stdout.splitlines()
    odd, gone = map(json.loads, objects)
    assert odd == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "\\xfe",
        "value": "\\xff\nx",
        "headers": [["a", "1"], ["a", "\\xfd"], ["none", None]],
    }
    assert (gone["key"], gone["value"], gone["offset"]) == ("gone", None, 1)


def test_an_empty_topic_ends_at_once_with_nothing(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    read = done(tailrace("broker", "read", kafka.topic("empty"), cwd=tmp_path, env=env, timeout_s=20))
    assert (read.stdout, read.stderr) == ("", "")


@contextmanager
def reading(folder: Path, env: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`tailrace broker read` in the background, what it prints in files."""
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*TAILRACE, "broker", "read", *arguments],
            env=environment(env),
            stdout=out,
            stderr=err,
            text=True,
            # A shell makes its background jobs deaf to Ctrl-C, and so would be everything that they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_following_shows_what_comes_until_ctrl_c(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    topic = kafka.topic("followed")
    kafka.send(topic, [b"before"])
    with reading(tmp_path, env, topic, "--follow", "--from", "latest") as process:
        wait_until(lambda: "Ctrl-C stops it." in (tmp_path / "err").read_text(), 20, "it has begun to read")
        for number in (1, 2):
            kafka.send(topic, [f"{number}".encode()])
            wait_until(lambda: len((tmp_path / "out").read_text().splitlines()) == number, 20, "the record is shown")  # noqa: B023
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert (tmp_path / "out").read_text() == "\t1\n\t2\n"
    assert (tmp_path / "err").read_text() == f"Reading {topic}; Ctrl-C stops it.\n"


def test_a_count_waits_for_its_records_and_ctrl_c_before_that_is_130(
    kafka: Kafka, env: dict[str, str], tmp_path: Path
) -> None:
    topic = kafka.topic("counted", partitions=1)
    kafka.send(topic, [b"1"])
    with reading(tmp_path, env, topic, "--count", "2") as process:
        wait_until(lambda: (tmp_path / "out").read_text() == "\t1\n", 20, "the first is shown")
        assert process.poll() is None
        kafka.send(topic, [b"2"])
        assert process.wait(20) == 0
    assert (tmp_path / "out").read_text() == "\t1\n\t2\n"
    with reading(tmp_path, env, topic, "--count", "3") as process:
        wait_until(lambda: (tmp_path / "out").read_text() == "\t1\n\t2\n", 20, "two are shown")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert "Traceback" not in (tmp_path / "err").read_text()


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_whoever_reads_the_output_may_stop_reading(
    kafka: Kafka, env: dict[str, str], tmp_path: Path, form: list[str]
) -> None:
    topic = kafka.topic("piped")
    kafka.send(topic, [b"x" * 1000] * 2000)
    with subprocess.Popen(
        [*TAILRACE, "broker", "read", topic, *form],
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("arguments", [["send", "absent", "x"], ["read", "absent"], ["read", "absent", "--follow"]])
def test_a_missing_topic_is_reported_and_not_created(
    kafka: Kafka, env: dict[str, str], tmp_path: Path, arguments: list[str]
) -> None:
    for _ in range(2):
        assert_told(tailrace("broker", *arguments, cwd=tmp_path, env=env), "TOPIC_MISSING", 2)


@pytest.mark.parametrize("arguments", [["send", "payments", "x"], ["read", "payments"]])
def test_an_unreachable_broker_is_reported(tmp_path: Path, arguments: list[str]) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    result = tailrace("broker", *arguments, "--bootstrap-servers", nobody, cwd=tmp_path, timeout_s=20)
    assert_told(result, "BROKER_UNREACHABLE", 2)


def test_a_record_that_kafka_refuses_is_reported(kafka: Kafka, env: dict[str, str], tmp_path: Path) -> None:
    topic = kafka.topic("small", partitions=1)
    too_large = "x" * 1_100_000
    sent = subprocess.run(
        [*TAILRACE, "broker", "send", topic],
        input=f"small\n{too_large}\nnever\n",
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_told(sent, "KAFKA_ERROR", 2)
    assert "accepted 1 record, then refused one" in sent.stderr
    assert done(tailrace("broker", "read", topic, cwd=tmp_path, env=env)).stdout == "\tsmall\n"
