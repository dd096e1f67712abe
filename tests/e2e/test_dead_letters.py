"""A record that cannot be read stops nothing, and none is lost: policy, format and counts, in every mode."""

import json
import secrets
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import TAILRACE, environment, tailrace
from conftest import Kafka, wait_until

import tailrace as tr
from tailrace.errors import DeadLettersFailed, RecordMalformed
from tailrace.kafka.topics import create_topic, list_topics
from tailrace.testing import Record, at, run
from tailrace.testing.bench import shared_bench

pytestmark = pytest.mark.usefixtures("spark")

SHORTEST = "spark.sql.streaming.realTimeMode.minBatchDuration=1000"
SCHEMA = "id long not null, card string, amount double"
ADDED = [
    *("tailrace.topic", "tailrace.partition", "tailrace.offset", "tailrace.event_time", "tailrace.id"),
    *("tailrace.reason", "tailrace.error", "tailrace.pipeline", "tailrace.time", "tailrace.attempt"),
]


def pipeline(**changes: Any) -> tr.Pipeline:
    name = f"cards-{secrets.token_hex(4)}"
    settings: dict[str, Any] = {
        "name": name,
        "source": tr.KafkaSource(f"{name}-in", SCHEMA),
        "transform": lambda df: df.where("amount >= 0").select("id"),
        "sink": tr.KafkaSink(f"{name}-out"),
    }
    return tr.Pipeline(**(settings | changes))


def good(number: int) -> Record:
    return Record({"id": number, "card": f"c{number % 7}", "amount": float(number)})


def bad(number: int) -> Record:
    headers = [("trace", f"t{number}".encode()), ("trace", b"\x00\xff"), ("null", None), ("empty", b"")]
    return Record(f'{{"id": {number}, broken\t'.encode() + b"\xe4", key=b"\x01k%d" % number, headers=headers)


def test_one_in_a_hundred(every_mode: str) -> None:
    sent = [bad(number) if number % 100 == 50 else good(number) for number in range(2000)]
    output = run(pipeline(), sent, every_mode)
    assert sorted(row["id"] for row in output.rows) == [n for n in range(2000) if n % 100 != 50]
    letters = {letter.key: letter for letter in output.dead_letters}
    assert len(letters) == len(output.dead_letters) == 20
    for number in range(50, 2000, 100):
        letter, original = letters[b"\x01k%d" % number], bad(number)
        assert letter.value == original.value, "byte for byte"
        assert list(letter.headers[:4]) == list(original.headers)
    assert output.malformed == {"not_utf8": 20}


def test_the_format_of_a_dead_letter(every_mode: str) -> None:
    here = pipeline()
    output = run(here, [Record("{", key=b"k", headers=[("a", b"1")], partition=1, timestamp=at("09:00"))], every_mode)
    (letter,) = output.dead_letters
    assert letter.topic == f"{here.name}.dead-letters"
    assert (letter.key, letter.value) == (b"k", b"{")
    added = [name for name in ADDED if every_mode != "batch" or name != "tailrace.id"]
    assert [name for name, _ in letter.headers] == ["a", *added]
    headers = dict(letter.headers)
    if every_mode != "batch":
        assert (headers["tailrace.id"] or b"").endswith(b":0:r:0")
    assert headers["tailrace.topic"] == f"{here.name}-in".encode()
    assert headers["tailrace.partition"] == b"1"
    assert headers["tailrace.offset"] == b"0"
    assert letter.lineage.event_time == at("09:00")
    assert headers["tailrace.reason"] == b"not_json"
    assert b"Unexpected end-of-input" in headers["tailrace.error"]
    assert headers["tailrace.pipeline"] == here.name.encode()
    assert 1_700_000_000_000 < int(headers["tailrace.time"]) < 4_000_000_000_000
    assert headers["tailrace.attempt"] == b"1"


REASONS = {
    "not_json": [b"{broken", b'{"id": 1', b"{'id' 1}", b'{"id": 1}{"id": 2}', b'{"id": 1} x', b'{"id": 1}}'],
    "not_an_object": [b"[]", b'[{"id": 1}]', b"7", b'"text"', b"null", b"", b" "],
    "not_utf8": [b"\xff\xfe", b'{"id": 1, "card": "\xff"}'],
    "null_value": [None],
    "wrong_type": [
        b'{"id": "x"}',
        b'{"id": 1, "amount": "much"}',
        b'{"id": 1.5}',
        b'{"id": 99999999999999999999}',
        b'{"id": 1, "card": 1, "amount": []}',
    ],
    "missing_column": [b"{}", b'{"id": null}', b'{"card": "c"}'],
}


def test_every_reason(every_mode: str) -> None:
    sent = [Record(value) for values in REASONS.values() for value in values]
    output = run(pipeline(), [*sent, good(1)], every_mode)
    assert output.rows == [{"id": 1}]
    values_by_reason: dict[str, list[bytes | None]] = {}
    for letter in output.dead_letters:
        values_by_reason.setdefault((letter.header("tailrace.reason") or b"").decode(), []).append(letter.value)
    assert {reason: sorted(map(str, values)) for reason, values in values_by_reason.items()} == {
        reason: sorted(map(str, values)) for reason, values in REASONS.items()
    }
    assert output.malformed == {reason: len(values) for reason, values in REASONS.items()}


def test_what_spark_reads_is_not_malformed(mode: str) -> None:
    sent = ['{"id": 1, "more": [1, {"x": 2}]}', '{"id": 2, "amount": null}', ' {"id": 3, "amount": 5}\n']
    sent += ['{"id": 4, "card": "}\\"{ \\\\"}', "{'id': 5, 'card': '}\"{'} ", '{"id": 6, "card": "it\'s"}']
    output = run(pipeline(transform=lambda df: df), sent, mode)
    assert sorted(row["id"] for row in output.rows) == [1, 2, 3, 4, 5, 6]
    assert not output.dead_letters


def test_a_part_of_a_column_may_be_null_whatever_the_schema_says_of_it(mode: str) -> None:
    schema = "id long not null, place struct<zip: int not null, name: string not null> not null"
    here = pipeline(
        source=tr.KafkaSource(f"nested-{secrets.token_hex(4)}", schema),
        transform=lambda df: df.select("id", "place", "place.zip", "place.name").dropDuplicates(),
    )
    output = run(here, ['{"id": 1, "place": {}}', '{"id": 2, "place": {"zip": 7, "name": "x"}}'], mode)
    rows = {row["id"]: row for row in output.rows}
    assert rows[1] == {"id": 1, "place": {}}, "no zero, no exception"
    assert rows[2] == {"id": 2, "place": {"zip": 7, "name": "x"}, "zip": 7, "name": "x"}


def test_fail_ends_the_query_at_the_first_one_and_names_it(every_mode: str) -> None:
    here = pipeline(malformed="fail")
    with pytest.raises(RecordMalformed) as failed:
        run(here, [Record(good(0).value, partition=0), Record("{", partition=0)], every_mode)
    assert f"record {here.name}-in-0@1 is malformed" in failed.value.what
    assert failed.value.why.startswith("not_json: Unexpected end-of-input")
    assert f"{here.name}.dead-letters" not in list_topics(shared_bench().config)


def test_drop_only_counts(mode: str) -> None:
    here = pipeline(malformed="drop")
    output = run(here, [good(1), "{", "[", b"\xff", good(2)], mode)
    assert sorted(row["id"] for row in output.rows) == [1, 2]
    assert output.malformed == {"not_json": 1, "not_an_object": 1, "not_utf8": 1}
    assert f"{here.name}.dead-letters" not in list_topics(shared_bench().config)


def test_a_dead_letter_that_is_sent_back_counts_its_attempts(mode: str) -> None:
    here = pipeline()
    (first,) = run(here, ["{"], mode).dead_letters
    (second,) = run(here, [Record(first.value, headers=first.headers)], mode).dead_letters
    assert second.header("tailrace.attempt") == b"2"
    assert len(second.headers) == 2 * len(ADDED), "what came with it is still there"


def test_a_topic_of_the_users_own_takes_them(mode: str) -> None:
    here = pipeline(dead_letters=f"rejected-{secrets.token_hex(4)}")
    (letter,) = run(here, ["{"], mode).dead_letters
    assert letter.topic == here.dead_letters


def test_state_is_no_obstacle(mode: str) -> None:
    here = pipeline(
        transform=lambda df: df.groupBy("card").count(), sink=tr.KafkaSink("dead-letters-counts", key="card")
    )
    output = run(here, [good(0), "{", good(7), b"\xff", good(14)], mode)
    assert output.last("card") == {"c0": {"card": "c0", "count": 3}}
    assert len(output.dead_letters) == 2


def test_letters_that_cannot_be_written_end_the_query_and_are_written_later(mode: str, tmp_path: Path) -> None:
    bench = shared_bench()
    here = pipeline()
    topic = here.dead_letter_topic or ""
    bench.make_topics([f"{here.name}-in", f"{here.name}-out"], 2)
    create_topic(bench.config, topic, 1, {"max.message.bytes": "600"})
    bench.send([Record(b"{" + b"x" * 2000, topic=f"{here.name}-in"), Record(good(1).value, topic=f"{here.name}-in")])
    where: dict[str, Any] = {"bootstrap_servers": bench.broker.bootstrap_servers, "checkpoint": tmp_path / "c"}
    where["conf"] = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
    with pytest.raises(DeadLettersFailed) as failed:
        tr.run(here, mode, once=True, **where)
    assert topic in failed.value.what
    elsewhere = pipeline(name=here.name, source=here.source, sink=here.sink, dead_letters=f"{here.name}-more")
    summary = tr.run(elsewhere, mode, once=True, **where)
    assert summary.malformed == {"not_json": 1}
    end = bench.ends([f"{here.name}-more"])[f"{here.name}-more"]
    (letter,) = bench.read(f"{here.name}-more", {}, end)
    assert letter.value == b"{" + b"x" * 2000


FILE = """
import tailrace as tr

pipeline = tr.Pipeline(
    name="{name}",
    source=tr.KafkaSource("{name}-in", "id long not null", starting="earliest"),
    transform=lambda df: df,
    sink=tr.KafkaSink("{name}-out"),
)
"""


def _project(folder: Path) -> tuple[str, dict[str, str]]:
    name = f"file-{secrets.token_hex(4)}"
    bench = shared_bench()
    bench.make_topics([f"{name}-in", f"{name}-out"], 2)
    (folder / "p.py").write_text(FILE.format(name=name))
    return name, {"TAILRACE_BOOTSTRAP_SERVERS": bench.broker.bootstrap_servers}


def test_the_command_tells_the_counts_when_it_is_stopped(kafka: Kafka, tmp_path: Path) -> None:
    name, env = _project(tmp_path)
    err = tmp_path / "err"
    with err.open("w") as words:
        process = subprocess.Popen(
            [*TAILRACE, "run", "p.py", "--mode", "realtime", "--json"],
            cwd=tmp_path,
            env=environment(env),
            stderr=words,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
    with process:
        try:
            wait_until(lambda: "Ctrl-C stops it." in err.read_text(), 90, "the query has started")
            kafka.send(f"{name}-in", [{"id": 1}, b"{", b"{", b"\xff", {"id": 2}])
            kafka.receive_count(f"{name}-out", 2)
            bench = shared_bench()
            letters = f"{name}.dead-letters"
            wait_until(lambda: bench.ends([letters])[letters][0] == 3, 30, "three dead letters")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err.read_text()
    assert f"Created the topic {name}.dead-letters" in err.read_text()
    assert f"3 records could not be read (not_json 2, not_utf8 1): now in {name}.dead-letters" in err.read_text()
    assert json.loads(out)["malformed"] == {"not_json": 2, "not_utf8": 1}


def test_none_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    mode = "realtime"  # where a batch is longest, and so what a kill interrupts
    name, env = _project(tmp_path)
    bench = shared_bench()
    source, letters = f"{name}-in", f"{name}.dead-letters"
    # Good ones last: a first start is refused where none of the newest records fits the schema.
    bench.send([Record(b"{%d" % number, topic=source) for number in range(50)])
    bench.send([Record({"id": number}, topic=source) for number in range(10)])
    process = subprocess.Popen(
        [*TAILRACE, "run", "p.py", "--mode", mode], cwd=tmp_path, env=environment(env), stderr=subprocess.DEVNULL
    )
    with process:
        try:
            wait_until(lambda: letters in list_topics(bench.config), 60, "the topic for dead letters")
            wait_until(lambda: bench.ends([letters])[letters][0] > 0, 60, "a dead letter")
        finally:
            process.kill()
    bench.send([Record(b"{%d" % number, topic=source) for number in range(50, 60)])
    done = tailrace("run", "p.py", "--mode", mode, "--once", "--conf", SHORTEST, cwd=tmp_path, env=env, timeout_s=120)
    assert done.returncode == 0, done.stderr
    values = {letter.value for letter in bench.read(letters, {}, bench.ends([letters])[letters])}
    assert values == {b"{%d" % number for number in range(60)}
