"""``tailrace run``: a pipeline until it ends or is told to end."""

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.costs import cost_in_words
from tailrace.cli.output import BootstrapServers, Json, Verbose, console, logged_to_screen, print_json, say
from tailrace.errors import OptionRefused, counted
from tailrace.pipeline import Mode, Pipeline
from tailrace.tuning import SHUFFLE_PARTITIONS

if TYPE_CHECKING:
    from tailrace.prepare.options import RunOptions
    from tailrace.running.query import RunningQuery, RunSummary


class Modes(StrEnum):
    """What ``--mode`` takes."""

    REALTIME = "realtime"
    MICROBATCH = "microbatch"
    AUTO = "auto"


class Starved(StrEnum):
    """What ``--starved`` takes."""

    STOP = "stop"
    WARN = "warn"


PythonTimeout = Annotated[str, typer.Option(help="How long a Python function may take over the rows it was given.")]
Once = Annotated[
    bool,
    typer.Option(
        "--once", help="Process what is in the topics now, from their beginning unless told otherwise, and end."
    ),
]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="file.py, file.py:name or module:name.")],
    *,
    mode: Annotated[
        Modes, typer.Option(help="How it runs; auto is real time where the check finds nothing against it.")
    ] = Modes.REALTIME,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            help="Real time: how often progress is saved, 5m by default, 5s at least. Records never wait for it.",
            show_default=False,
        ),
    ] = None,
    trigger_every: Annotated[
        str, typer.Option(help="Micro-batch: how often a batch starts; 0ms means one after the other.")
    ] = "0ms",
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where progress is saved; .tailrace/checkpoints/<name> by default."),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark runs; this machine, with the slots needed, by default.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
    ] = None,
    shuffle_partitions: Annotated[
        int | None, typer.Option(min=1, help="Tasks after each shuffle; the source's partitions by default.")
    ] = None,
    once: Once = False,
    starved: Annotated[
        Starved, typer.Option(help="Real time: what to do where a partition is not read any more.")
    ] = Starved.STOP,
    python_timeout: PythonTimeout = "2m",
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline in real time or in micro-batch until Ctrl-C or SIGTERM."""
    from tailrace.prepare.loader import load_pipeline
    from tailrace.prepare.options import run_options
    from tailrace.running.signals import stop_on_signals
    from tailrace.running.start import start_pipeline
    from tailrace.spark_session import prelaunch_jvm

    options = run_options(
        str(mode),
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        trigger_every=trigger_every,
        master=master,
        conf=settings_of(conf or [], shuffle_partitions),
        once=once,
        starved=str(starved),
        python_timeout=python_timeout,
    )
    prelaunch_jvm(options.conf, options.master)
    pipeline = load_pipeline(file)
    with console().status(f"Starting {pipeline.name} ..."):
        running = start_pipeline(pipeline, options, say)
    with stop_on_signals() as stop, logged_to_screen():
        _say_started(pipeline, options, running)
        done = running.wait(stop=stop)
        summary = running.stop()
    _say_ended(pipeline, summary, done=done)
    if json:
        print_json(asdict(summary))


def _say_started(pipeline: Pipeline, options: "RunOptions", running: "RunningQuery") -> None:
    from tailrace.prepare.duration import in_words

    say(f"{pipeline.name}: {_sources(pipeline)} -> {pipeline.sink.in_words}, {_how(running.mode)}")
    for reason in running.why_microbatch:
        say(f"not in real time: {reason.title} [{reason.code}]")
    for finding in running.report.findings:
        if finding.severity == "warning":
            say(f"{finding.severity}: {finding.title} [{finding.code}]")
    if running.lost_lineage:
        say(f"lineage: {running.lost_lineage}")
    if running.mode is Mode.REALTIME:
        slots = f"{running.slots.sum_in_words} task {_slots(running.slots.required)}; " if running.slots else ""
        say(f"{slots}progress is saved every {in_words(options.interval_ms)} in {running.checkpoint}")
    else:
        say(f"progress is saved with every batch in {running.checkpoint}")
    say("It ends when what is there now has been processed." if options.once else "Ctrl-C stops it.")


def _say_ended(pipeline: Pipeline, summary: "RunSummary", *, done: bool) -> None:
    ended = "done" if done else "stopped"
    saved = f"{counted(summary.batches, 'checkpoint')} with {counted(summary.input_rows, 'record')}"
    say(f"{ended} after {summary.seconds:g} s: {saved}")
    if summary.malformed:
        say(_malformed(pipeline, summary.malformed))
    for name, cost in summary.python.items():
        say(f"python: {name}: {cost_in_words(asdict(cost))}")
    if summary.uncommitted_rows:
        again = counted(summary.uncommitted_rows, "record")
        say(f"{again} since the last checkpoint will be processed again at the next start")


def _slots(number: int) -> str:
    return "slot" if number == 1 else "slots"


def _sources(pipeline: Pipeline) -> str:
    return " + ".join(source.in_words for source in pipeline.sources)


def _malformed(pipeline: Pipeline, counts: Mapping[str, int]) -> str:
    """The records that could not be read, and where they are now."""
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in sorted(counts.items()))
    where = f"now in {pipeline.dead_letter_topic}" if pipeline.malformed == "dead-letter" else "dropped"
    return f"{counted(sum(counts.values()), 'record')} could not be read ({reasons}): {where}"


def _how(mode: Mode) -> str:
    return "in real time: every record at once" if mode is Mode.REALTIME else "in micro-batches"


def settings_of(pairs: list[str], shuffle_partitions: int | None) -> dict[str, str]:
    """The Spark settings that a command's options mean."""
    settings = {} if shuffle_partitions is None else {SHUFFLE_PARTITIONS: str(shuffle_partitions)}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise OptionRefused(f"--conf {pair!r} is no setting", fix="write it as --conf spark.some.key=value")
        settings[key] = value
    return settings
