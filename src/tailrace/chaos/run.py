"""One chaos run: the private broker, the topics, the course, the comparison with an undisturbed run."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tailrace.chaos.account import Account, account
from tailrace.chaos.course import Comparison, Course
from tailrace.chaos.journal import Journal
from tailrace.chaos.options import ChaosOptions, Fault
from tailrace.chaos.outputs import read_outputs
from tailrace.chaos.pipeline_process import Settings
from tailrace.chaos.receiver import Receiver
from tailrace.chaos.result import ChaosResult
from tailrace.chaos.screen import ChaosScreen
from tailrace.chaos.small_disk import SmallDisk
from tailrace.chaos.supervised_pipeline import SupervisedPipeline
from tailrace.errors import OptionRefused
from tailrace.kafka.broker import STARTING_TEMPORARY
from tailrace.kafka.client import plain_client
from tailrace.kafka.restartable_broker import RestartableBroker
from tailrace.kafka.topics import ClientConfig, create_topic, log_ends, partition_counts
from tailrace.measure.traffic.load import Flow
from tailrace.measure.traffic.records import Records
from tailrace.pipeline import Pipeline
from tailrace.prepare.loader import load_pipeline
from tailrace.spark_session import end_session, write_spark_archive
from tailrace.toolchain import ArchiveNotWrittenError, ensure_engine, ensure_jars, ensure_java
from tailrace.toolchain.filelock import LockTimeoutError, exclusive

RESULT_FILE = "result.json"
JOURNAL_FILE = "faults.jsonl"
_LOCK_TIMEOUT_S = 0.5


def run_chaos(spec: str, records: Records, options: ChaosOptions, screen: ChaosScreen, folder: Path) -> ChaosResult:
    """Run a pipeline under load and faults; return the result and write it to the folder.

    Every recovery is saved at once: the same command continues an interrupted run.
    """
    folder, environment = folder.absolute(), dict(os.environ)
    _prepare(screen)
    pipeline = load_pipeline(spec)
    end_session()  # a file with Python functions starts Spark, which also sets variables
    source, outputs = topics_of(pipeline, options)
    with _locked(folder):
        journal = _open_journal(folder, options.fingerprint(spec, str(records)), screen)
        with ExitStack() as stack:
            screen.say(STARTING_TEMPORARY)
            broker = stack.enter_context(RestartableBroker(folder / "broker", screen.say))
            client = plain_client(broker.bootstrap_servers)
            _create_topics(client, pipeline, source, outputs, options.partitions)
            settings = _settings(spec, source, outputs, broker, folder, options)
            disk = SmallDisk(settings.checkpoint) if Fault.DISK_FULL in options.faults else None
            if disk is not None:
                stack.enter_context(disk)
            receiver = stack.enter_context(Receiver(client, _ends(client, outputs)))
            screen.say(f"Starting {pipeline.name} ...")
            enter = disk.enter if disk is not None else ()
            under_test = stack.enter_context(SupervisedPipeline(settings, folder / "logs", enter, environment))
            flow = Flow(records, options.rate, first_number=_count(client, source))
            course = Course(options, client, source, flow, under_test, broker, disk, receiver, journal, screen)
            if not settings.finish.exists():
                course.run()
            comparison = course.finish()
            sent = _count(client, source)
            screen.show("comparing")
            accounts = compare(client, comparison)
        result = ChaosResult(
            pipeline.name, options.mode, _as_settings(spec, options), sent, accounts,
            sorted(journal.faults, key=lambda each: each.number), under_test.starts, course.drain_ms,
        )  # fmt: skip
        _end(folder, result)
    return result


def topics_of(pipeline: Pipeline, options: ChaosOptions) -> tuple[str, tuple[str, ...]]:
    """Return the topic that gets the load, and all topics that the pipeline writes.

    Raises:
        OptionRefused: The pipeline has several sources, or its output topics are unknown.
    """
    if len(pipeline.sources) > 1:
        raise OptionRefused(
            f"pipeline {pipeline.name!r} has {len(pipeline.sources)} sources",
            why="a chaos run sends records to one topic",
            fix="use a pipeline with one source",
        )
    if pipeline.sink.topic_column is not None and not options.topics:
        raise OptionRefused(
            f"the output topics of pipeline {pipeline.name!r} are unknown",
            why=f"column {pipeline.sink.topic_column!r} names the topic of each row",
            fix="list them: --topics NAME,NAME",
        )
    names = pipeline.sources[0].topic_names
    source = names[0] if len(names) == 1 else f"{pipeline.name}-input"
    outputs = dict.fromkeys(filter(None, (pipeline.sink.topic, *options.topics, pipeline.dead_letter_topic)))
    return source, tuple(outputs)


def compare(client: ClientConfig, offsets: Comparison) -> dict[str, Account]:
    """Compare the outputs in each topic with those of the undisturbed run."""
    accounts = {}
    for topic, end in offsets.finished.items():
        received = read_outputs(client, topic, {}, end)
        expected = read_outputs(client, topic, offsets.begin[topic], offsets.end[topic])
        if len(expected) or len(received):
            accounts[topic] = account(expected, received)
    return accounts


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with exclusive(folder / ".lock", on_wait=lambda _: None, timeout_s=_LOCK_TIMEOUT_S):
            yield
    except LockTimeoutError as busy:
        raise OptionRefused(
            f"another chaos run uses {folder}", why=f"process {busy.holder} runs there", fix="use another --out"
        ) from busy


def _open_journal(folder: Path, fingerprint: str, screen: ChaosScreen) -> Journal:
    """Continue an interrupted run in the folder, or begin one."""
    journal = Journal(folder / JOURNAL_FILE, fingerprint)
    if journal.is_resumed and (folder / "checkpoint").is_dir() and _is_empty(folder / "checkpoint"):
        screen.say("The checkpoint was lost with its small disk: starting over")
        (folder / JOURNAL_FILE).unlink()
        journal = Journal(folder / JOURNAL_FILE, fingerprint)
    if journal.is_resumed:
        screen.say(f"Resuming {folder}: {len(journal.faults)} faults are done")
    else:
        for name in ("broker", "checkpoint", "logs", "finish", RESULT_FILE):
            _remove(folder / name)
    return journal


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def _prepare(screen: ChaosScreen) -> None:
    """Obtain Java, the jars, the engine and the class archive, before anything is measured."""
    java = ensure_java(screen.say)
    ensure_engine(java, ensure_jars(java, ["connector"], screen.say)["connector"], screen.say)
    with contextlib.suppress(ArchiveNotWrittenError):
        write_spark_archive(screen.say)


def _create_topics(
    client: ClientConfig, pipeline: Pipeline, source: str, outputs: tuple[str, ...], partitions: int
) -> None:
    for topic in (source, *outputs):
        # Tailrace creates the topic of dead letters with one partition.
        create_topic(client, topic, 1 if topic == pipeline.dead_letter_topic else partitions)


def _settings(
    spec: str, source: str, outputs: tuple[str, ...], broker: RestartableBroker, folder: Path, options: ChaosOptions
) -> Settings:
    return Settings(
        spec,
        source,
        outputs,
        broker.bootstrap_servers,
        str(folder),
        options.mode,
        options.master,
        options.checkpoint_every,
        options.progress_every,
        options.delivery,
        dict(options.conf),
    )


def _ends(client: ClientConfig, topics: tuple[str, ...]) -> dict[str, dict[int, int]]:
    return log_ends(client, partition_counts(client, topics))


def _count(client: ClientConfig, topic: str) -> int:
    return sum(_ends(client, (topic,))[topic].values())


def _as_settings(spec: str, options: ChaosOptions) -> dict[str, object]:
    given = asdict(options)
    return {"file": spec, **given, "faults": [str(each) for each in options.faults], "at": str(options.at)}


def _end(folder: Path, result: ChaosResult) -> None:
    """Write the result; remove everything but the logs."""
    (folder / RESULT_FILE).write_text(json.dumps(result.to_json(), indent=1) + "\n")
    for name in ("broker", "checkpoint", "finish", JOURNAL_FILE):
        _remove(folder / name)
    for undisturbed in folder.glob("undisturbed-*"):
        _remove(undisturbed)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
