"""Dead letters are listed, shown and replayed, to their source and through the pipeline: none twice, none lost."""

import json
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import tailrace
from pyspark import cloudpickle
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.cli import app
from tailrace.dead_letters import replay as replaying
from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.progress import Progress
from tailrace.dead_letters.queue import Queue, open_queue
from tailrace.dead_letters.replay import Destination, Replay, Tally
from tailrace.dead_letters.selection import Selection
from tailrace.dead_letters.to_pipeline import replaying_pipeline
from tailrace.dead_letters.to_source import ToSource
from tailrace.errors import OptionRefused
from tailrace.prepare.loader import load_pipeline
from tailrace.testing import OutputRecord, Record, at
from tailrace.testing.bench import shared_bench

pytestmark = pytest.mark.usefixtures("spark")

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

SENT = [
    Record({"id": 1}),
    Record(b"oops", key=b"k", headers=[("trace", b"t-7"), ("null", None)], partition=1, timestamp=at("09:00")),
    Record({"id": "7"}, partition=0),
    Record({"id": 13}, partition=0),
    Record({"id": 2}),
]


def picky(number):  # type hints would make it a function of another kind
    if number == 13:
        raise ValueError("unlucky")
    return number


def broken(**changes: Any) -> tr.Pipeline:
    """A pipeline whose schema refuses ids in quotes, and whose function fails on 13."""
    name = f"dlq-{secrets.token_hex(4)}"
    shared_bench().make_topics([f"{name}-in", f"{name}-more", f"{name}-out"], 2)
    settings: dict[str, Any] = {
        "name": name,
        "source": tr.KafkaSource(f"{name}-in", "id long not null", starting="earliest"),
        "transform": lambda df: df.select(F.udf(picky, "long")("id").alias("id")),
        "sink": tr.KafkaSink(f"{name}-out"),
        "python_errors": "dead-letter",
    }
    return tr.Pipeline(**(settings | changes))


def fixed(pipeline: tr.Pipeline) -> tr.Pipeline:
    """The same pipeline, which now accepts everything that is JSON."""
    source = tr.KafkaSource(f"{pipeline.name}-in", "id string not null", starting="earliest", metadata="kafka")
    return replace(pipeline, source=source, transform=lambda df: df.select("id", "kafka.topic", "kafka.offset"))


def send(pipeline: tr.Pipeline, records: Sequence[Record]) -> None:
    shared_bench().send([replace(each, topic=each.topic or f"{pipeline.name}-in") for each in records])


def run(pipeline: tr.Pipeline, mode: str) -> None:
    servers = shared_bench().broker.bootstrap_servers
    tr.run(pipeline, mode, bootstrap_servers=servers, once=True)  # type: ignore[arg-type]


def written(topic: str) -> list[OutputRecord]:
    bench = shared_bench()
    return bench.read(topic, {}, bench.ends([topic])[topic])


def opened(pipeline: tr.Pipeline) -> Queue:
    return open_queue(pipeline, shared_bench().broker.bootstrap_servers)


def replay(pipeline: tr.Pipeline, destination: Destination, **changes: Any) -> Tally:
    queue, tally = opened(pipeline), Tally()
    progress = Progress(pipeline.name, queue.topic_id())
    with progress.held():
        Replay(queue, Selection(), progress, **({"max_attempt": 5} | changes)).run(destination, tally)
    return tally


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # checkpoints and the progress of replays are here


def by_reason(pipeline: tr.Pipeline) -> dict[tuple[str, int], Letter]:
    letters = list(opened(pipeline).letters(Selection()))
    found = {(letter.reason, letter.attempt): letter for letter in letters}
    assert len(found) == len(letters)
    return found


def test_to_the_source_and_through_the_running_pipeline(mode: str) -> None:
    pipeline = broken()
    send(pipeline, SENT)
    run(pipeline, mode)
    first = by_reason(pipeline)
    assert set(first) == {("not_json", 1), ("wrong_type", 1), ("python_error", 1)}
    destination = ToSource(opened(pipeline).config)
    assert replay(pipeline, destination) == Tally(3)
    values = Counter(each.value for each in written(f"{pipeline.name}-in"))
    assert values == {b"oops": 2, b'{"id": "7"}': 2, b'{"id": 13}': 2, b'{"id": 1}': 1, b'{"id": 2}': 1}
    run(fixed(pipeline), mode)
    assert {row.row["id"] for row in written(f"{pipeline.name}-out")} == {1, 2, "7", "13"}
    again = by_reason(pipeline)
    assert set(again) == {*first, ("not_json", 2)}
    second = again["not_json", 2]
    assert second.record.headers[: len(first["not_json", 1].record.headers)] == first["not_json", 1].record.headers
    assert (second.partition, second.record.key, second.own_headers) == (1, b"k", first["not_json", 1].own_headers)
    assert replay(pipeline, destination, max_attempt=1) == Tally(0, replayed_before=3, above_max_attempt=1)
    assert replay(pipeline, destination) == Tally(1, replayed_before=3)


def test_through_the_pipeline_in_a_run_of_its_own(mode: str, tmp_path: Path) -> None:
    pipeline = broken()
    send(pipeline, SENT)
    run(pipeline, mode)
    first = by_reason(pipeline)
    bench, source = shared_bench(), f"{pipeline.name}-in"
    before = bench.ends([source]), sorted(map(str, (tmp_path / ".tailrace/checkpoints").rglob("*")))
    with replaying_pipeline(fixed(pipeline), bench.broker.bootstrap_servers) as destination:
        assert replay(pipeline, destination) == Tally(3)
        results = {each.row["id"]: each for each in written(f"{pipeline.name}-out") if "offset" in each.row}
        assert set(results) == {"7", "13"}
        for value, reason in (("7", "wrong_type"), ("13", "python_error")):
            origin, lineage = first[reason, 1], results[value].lineage
            assert (lineage.topic, lineage.partition, lineage.offset) == (source, origin.partition, origin.offset)
            assert results[value].row == {"id": value, "topic": source, "offset": origin.offset}
        again = by_reason(pipeline)
        assert set(again) == {*first, ("not_json", 2)}
        second = again["not_json", 2]
        assert (second.at, second.event_time_ms) == (first["not_json", 1].at, first["not_json", 1].event_time_ms)
        assert (second.record.key, second.own_headers) == (b"k", first["not_json", 1].own_headers)
        assert replay(pipeline, destination) == Tally(1, replayed_before=3), "only what is new"
    assert (bench.ends([source]), sorted(map(str, (tmp_path / ".tailrace/checkpoints").rglob("*")))) == before


def test_a_python_function_that_fails_again_writes_a_letter_with_a_higher_attempt() -> None:
    pipeline = broken()
    send(pipeline, SENT)
    run(pipeline, "microbatch")
    with replaying_pipeline(pipeline, shared_bench().broker.bootstrap_servers) as destination:
        assert replay(pipeline, destination) == Tally(3)
    letters = by_reason(pipeline)
    assert {reason for reason, attempt in letters if attempt == 2} == {"not_json", "wrong_type", "python_error"}
    for reason in ("not_json", "wrong_type", "python_error"):
        assert letters[reason, 2].at == letters[reason, 1].at


def test_each_letter_goes_to_the_source_that_it_is_from() -> None:
    name = f"dlq-{secrets.token_hex(4)}"
    sources = [
        tr.KafkaSource(f"{name}-in", "id long", starting="earliest"),
        tr.KafkaSource(pattern=f"{name}-mor.", schema="number long", starting="earliest"),
    ]

    def merged(orders: Any, more: Any) -> Any:
        return orders.union(more)

    pipeline = broken(name=name, source=sources, transform=merged, sink=tr.KafkaSink(f"{name}-out"))
    shared_bench().make_topics([f"{name}-in", f"{name}-more", f"{name}-out"], 2)
    send(pipeline, [Record({"id": "1"}), Record({"number": "2"}, topic=f"{name}-more")])
    run(pipeline, "microbatch")
    either = [replace(each, schema=each.schema.replace("long", "string")) for each in sources]  # type: ignore[union-attr]
    with replaying_pipeline(replace(pipeline, source=either), shared_bench().broker.bootstrap_servers) as destination:
        assert replay(pipeline, destination) == Tally(2)
    results = {each.row["id"]: each.lineage.topic for each in written(f"{name}-out")}
    assert results == {"1": f"{name}-in", "2": f"{name}-more"}


@pytest.mark.parametrize(
    "transform",
    [
        lambda df: df.groupBy("id").count(),
        lambda df: df.dropDuplicates(["id"]),
    ],
    ids=["aggregate", "duplicates"],
)
def test_a_pipeline_with_state_is_refused(transform: Callable[[Any], Any]) -> None:
    pipeline = broken(transform=transform)
    with (
        pytest.raises(OptionRefused, match="keeps state") as refused,
        replaying_pipeline(pipeline, shared_bench().broker.bootstrap_servers),
    ):
        pass
    assert "--to source" in refused.value.fix


def test_an_interrupted_replay_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_BATCH_LETTERS", 4)
    pipeline = broken(transform=lambda df: df)
    bad = {b"{%d" % number for number in range(10)}
    send(pipeline, [*map(Record, sorted(bad)), *SENT])
    run(pipeline, "microbatch")
    to_source = ToSource(opened(pipeline).config)

    class Interrupted:
        batches = 0

        def replay(self, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
            self.batches += 1
            if self.batches == 2:
                to_source.replay(letters[:2], on_done)
                raise KeyboardInterrupt
            to_source.replay(letters, on_done)

    with pytest.raises(KeyboardInterrupt):
        replay(pipeline, Interrupted())
    assert replay(pipeline, to_source) == Tally(6, replayed_before=6)
    values = [each.value for each in written(f"{pipeline.name}-in")]
    assert {value: values.count(value) for value in bad} == dict.fromkeys(bad, 2)


FILE = """
import tailrace as tr

pipeline = tr.Pipeline(
    name="{name}",
    source=tr.KafkaSource("{name}-in", "id {kind} not null", starting="earliest"),
    transform=lambda df: df,
    sink=tr.KafkaSink("{name}-out"),
)
"""


Dlq = Callable[..., tuple[str, str]]


@pytest.fixture
def dlq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dlq:
    """Run a command in this process, whose Spark stays."""
    monkeypatch.setattr(app, "_end_spark", lambda: None)
    monkeypatch.setenv("TAILRACE_BOOTSTRAP_SERVERS", shared_bench().broker.bootstrap_servers)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run_command(*arguments: str) -> tuple[str, str]:
        code = app._run(["dlq", *arguments])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out, err

    return run_command


def test_the_commands(tmp_path: Path, dlq: Dlq) -> None:
    name = f"dlq-{secrets.token_hex(4)}"
    bench = shared_bench()
    bench.make_topics([f"{name}-in", f"{name}-out"], 2)
    file = tmp_path / "shop.py"
    file.write_text(FILE.format(name=name, kind="long"))
    expected = f"pipeline {name} has no dead letters: topic {name}.dead-letters does not exist yet\n"
    assert dlq("list", "shop.py") == ("", expected)
    pipeline = load_pipeline("shop.py")
    send(pipeline, SENT)
    run(pipeline, "microbatch")
    out, _ = dlq("list", "shop.py")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["not_json", f"{name}-in", "1"],
        ["wrong_type", f"{name}-in", "1"],
    ]
    out, _ = dlq("show", "shop.py", "--reason", "not_json", "--json")
    (letter,) = json.loads(out)["letters"]
    assert (letter["value"], letter["key"], letter["headers"]) == ("oops", "k", [["trace", "t-7"], ["null", None]])
    assert (letter["partition"], letter["event_time"][11:]) == (1, "09:00:00.000Z")
    file.write_text(FILE.format(name=name, kind="string"))
    servers = {"TAILRACE_BOOTSTRAP_SERVERS": bench.broker.bootstrap_servers}
    done = tailrace("dlq", "replay", "shop.py", "--to", "pipeline", "--json", cwd=tmp_path, env=servers)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["letters"] == 2
    assert [each.row for each in written(f"{name}-out") if each.row["id"] == "7"] == [{"id": "7"}]
    _, err = dlq("replay", "shop.py", "--to", "source", "--dry-run")
    assert err == "1 letter to replay; skipped: 2 replayed before\n"
