"""`--once`: what is in the topics now, all of it, and then the end."""

import json
import os
import secrets
import statistics
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import TAILRACE, environment
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from conftest import Kafka
from figures import note

import tailrace as tr
from tailrace.errors import CheckpointOutgrown
from tailrace.testing import Record
from tailrace.testing.bench import shared_bench

pytestmark = pytest.mark.usefixtures("spark")

CONF = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
SOAK = int(os.environ.get("TAILRACE_RESTARTS", "3")) > 3
RUNS = {"realtime": 20 if SOAK else 1, "microbatch": 5 if SOAK else 1}
"""Of the command; several in `make soak-stops`, which saves how soon it ends."""


def pipeline(transform: Any = lambda df: df.select("id")) -> tr.Pipeline:
    name = f"once-{secrets.token_hex(4)}"
    shared_bench().make_topics([f"{name}-in"], 2)
    shared_bench().make_topics([f"{name}-out"], 1)
    return tr.Pipeline(
        name=name,
        source=tr.KafkaSource(f"{name}-in", "id long, card string"),
        transform=transform,
        sink=tr.KafkaSink(f"{name}-out"),
    )


def send(here: tr.Pipeline, numbers: range) -> None:
    topic = here.sources[0].topic_names[0]
    shared_bench().send([Record({"id": n, "card": f"c{n % 3}"}, topic=topic) for n in numbers])


def run_once(here: tr.Pipeline, mode: str, folder: Path) -> Any:
    servers = shared_bench().broker.bootstrap_servers
    return tr.run(here, mode, bootstrap_servers=servers, checkpoint=folder / "c", conf=CONF, once=True)


def written(here: tr.Pipeline) -> list[Any]:
    topic = here.sink.topic or ""
    return [record.row for record in shared_bench().read(topic, {}, shared_bench().ends([topic])[topic])]


def test_everything_that_is_there_and_later_only_what_is_new(mode: str, tmp_path: Path) -> None:
    here = pipeline()
    send(here, range(100))
    summary = run_once(here, mode, tmp_path)
    assert sorted(row["id"] for row in written(here)) == list(range(100)), "from the beginning, though starting=latest"
    assert summary.input_rows == 100
    send(here, range(100, 120))
    assert run_once(here, mode, tmp_path).input_rows == 20
    assert sorted(row["id"] for row in written(here)) == list(range(120))
    assert run_once(here, mode, tmp_path).input_rows == 0
    assert len(written(here)) == 120


def test_state_goes_on_from_run_to_run_and_from_mode_to_mode(tmp_path: Path) -> None:
    here = pipeline(lambda df: df.groupBy("card").count())
    for number, mode in enumerate(["realtime", "microbatch", "realtime"]):
        send(here, range(number * 30, number * 30 + 30))
        run_once(here, mode, tmp_path)
    last = {row["card"]: row["count"] for row in written(here)}
    assert last == {"c0": 30, "c1": 30, "c2": 30}


def test_empty_topics_end_at_once(mode: str, tmp_path: Path) -> None:
    here = pipeline()
    began = time.monotonic()
    assert run_once(here, mode, tmp_path).input_rows == 0
    assert time.monotonic() - began < 60


def test_a_run_reads_every_source_to_its_end(mode: str, tmp_path: Path) -> None:
    """One source is empty, then the other one has fewer new records."""
    here, other = pipeline(), pipeline()
    sources = [*here.sources, *other.sources]
    both = replace(here, source=sources, transform=lambda first, second: first.union(second).select("id"))
    send(here, range(50))
    assert run_once(both, mode, tmp_path).input_rows == 50
    send(here, range(50, 55))
    send(other, range(55, 90))
    assert run_once(both, mode, tmp_path).input_rows == 40
    assert sorted(row["id"] for row in written(both)) == list(range(90))


def test_nothing_twice_and_nothing_lost_while_records_keep_coming(tmp_path: Path) -> None:
    mode = "realtime"  # Spark itself bounds a run in micro-batches
    here = pipeline()
    sent = 0
    stop = threading.Event()

    def produce() -> None:
        nonlocal sent
        while not stop.is_set():
            send(here, range(sent, sent + 20))
            sent += 20
            time.sleep(0.05)

    send(here, range(sent, sent + 20))
    sent += 20
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(2):
            run_once(here, mode, tmp_path)
    finally:
        stop.set()
        producer.join()
    run_once(here, mode, tmp_path)
    assert sorted(row["id"] for row in written(here)) == list(range(sent))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_are_no_obstacle(isolation: str, tmp_path: Path) -> None:
    here = pipeline()
    source = replace(here.sources[0], options={"kafka.isolation.level": isolation})
    producer = Producer({**shared_bench().config, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(20)
    for number, aborted in enumerate([False, True, False, True]):
        producer.begin_transaction()
        producer.produce(source.topic_names[0], json.dumps({"id": number}).encode(), partition=0)
        producer.flush(20)
        if aborted:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    run_once(replace(here, source=source), "realtime", tmp_path)
    seen = [0, 2] if isolation == "read_committed" else [0, 1, 2, 3]
    assert sorted(row["id"] for row in written(here)) == seen


def test_an_open_transaction_is_left_for_the_next_run(mode: str, tmp_path: Path) -> None:
    """A consumer of committed records cannot read past its beginning, so the run ends there."""
    here = pipeline()
    source = replace(here.sources[0], options={"kafka.isolation.level": "read_committed"})
    here = replace(here, source=source)
    producer = Producer({**shared_bench().config, "transactional.id": secrets.token_hex(8)})
    producer.init_transactions(20)
    for number in range(2):
        producer.begin_transaction()
        producer.produce(source.topic_names[0], json.dumps({"id": number}).encode(), partition=0)
        producer.flush(20)
        if number == 0:
            producer.commit_transaction(20)
    summary = run_once(here, mode, tmp_path)
    assert (summary.input_rows, summary.repeats) == (1, "")
    assert [row["id"] for row in written(here)] == [0]
    producer.commit_transaction(20)
    assert run_once(here, mode, tmp_path).input_rows == 1
    assert sorted(row["id"] for row in written(here)) == [0, 1]


def test_the_command(kafka: Kafka, mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"file-{secrets.token_hex(4)}"
    shared_bench().make_topics([f"{name}-in", f"{name}-out"], 2)
    (tmp_path / "p.py").write_text(
        f"import tailrace as tr\n"
        f"pipeline = tr.Pipeline(name='{name}', source=tr.KafkaSource('{name}-in', 'id long'),\n"
        f"    transform=lambda df: df, sink=tr.KafkaSink('{name}-out'))\n"
    )
    env = {"TAILRACE_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    after_s = []
    for number in range(RUNS[mode]):
        kafka.send(f"{name}-in", [{"id": n} for n in range(10 * number, 10 * number + 10)])
        code, lines = timed_lines("run", "p.py", "--once", "--mode", mode, cwd=tmp_path, env=env)
        words = "\n".join(line for _, line in lines)
        assert code == 0, words
        assert "It ends when all existing records are processed." in words
        assert "with 10 records" in words
        assert "since the last checkpoint" not in words
        assert len(kafka.receive_count(f"{name}-out", 10 * number + 10)) == 10 * number + 10
        (closed,) = [at for at, line in lines if line.startswith("done after")]
        after_s.append(closed - last_written_at(kafka, f"{name}-out", 2))
        note("stops", f"closing message of --once after the last output, {mode}", after_s[-1])
    # The record's own time is a little earlier than its acknowledgement, so the closing message is in fact sooner.
    assert max(after_s) < 60, "it does not wait for the end of the interval, which is five minutes"
    if SOAK:  # nothing else runs meanwhile
        with capsys.disabled():
            figures = f"{statistics.median(after_s):.2f} s | {max(after_s):.2f} s"
            print(f"\n| closing message after the last output, {mode} | {len(after_s)} | {figures} |")
        assert max(after_s) < 3, "within 1 s, with room for a busy machine"


def last_written_at(kafka: Kafka, topic: str, partitions: int) -> float:
    """The time of the latest record of a topic, in seconds since the epoch."""
    latest = {TopicPartition(topic, number): OffsetSpec.max_timestamp() for number in range(partitions)}
    admin = AdminClient(kafka.config)  # held by name: its answers die with it
    return max(answer.result(20).timestamp for answer in admin.list_offsets(latest).values()) / 1000


def timed_lines(*arguments: str, cwd: Path, env: dict[str, str]) -> tuple[int, list[tuple[float, str]]]:
    """Run a command; return its exit code and when it wrote each line to standard error."""
    with subprocess.Popen(
        [*TAILRACE, *arguments], cwd=cwd, env=environment(env), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = [(time.time(), line.rstrip()) for line in process.stderr]
        return process.wait(120), lines


def test_a_writer_runs_once(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    source, sink = kafka.topic("in"), kafka.topic("out")
    kafka.send_to_every_partition(source, [{"id": n} for n in range(20)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    stream = spark.readStream.format("kafka").options(**options, subscribe=source, startingOffsets="earliest").load()
    writer = stream.select("value").writeStream.format("kafka").options(**options, topic=sink).queryName("copy")
    assert tr.run(writer, mode, checkpoint=tmp_path / "c", once=True).batches >= 1
    kafka.send_to_every_partition(source, [{"id": n} for n in range(20, 30)])
    tr.run(writer, mode, checkpoint=tmp_path / "c", once=True)
    assert sorted(row["id"] for _, row in kafka.receive_count(sink, 30)) == list(range(30))


def test_a_checkpoint_of_another_state_or_of_fewer_sources_is_refused(mode: str, tmp_path: Path) -> None:
    here = pipeline(lambda df: df.groupBy("card").count())
    send(here, range(10))
    run_once(here, mode, tmp_path)
    send(here, range(10, 20))
    with pytest.raises(CheckpointOutgrown, match="state in the checkpoint does not fit the query"):
        run_once(replace(here, lineage=False), mode, tmp_path)
    more = [*here.sources, *pipeline().sources]
    both = replace(here, source=more, transform=lambda a, b: a.union(b).groupBy("card").count())
    with pytest.raises(CheckpointOutgrown, match="the checkpoint has 1 source and the query has 2 sources"):
        run_once(both, mode, tmp_path)
