"""``tailrace run``: run a pipeline until it ends or is stopped."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from tailrace.cli.arguments import PIPELINE_FILE
from tailrace.cli.costs import cost_in_words
from tailrace.cli.options import takes_run_options
from tailrace.cli.output import Json, Verbose, console, logged_to_screen, print_json, say
from tailrace.errors import counted
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.options import RunOptions

if TYPE_CHECKING:
    from tailrace.running.query import RunningQuery
    from tailrace.running.summary import RunSummary


@takes_run_options
def run(
    file: Annotated[str, PIPELINE_FILE],
    *,
    options: RunOptions,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline in real time or in micro-batch until Ctrl-C or SIGTERM."""
    from tailrace.prepare.loader import load_pipeline
    from tailrace.running.run import run_query
    from tailrace.spark_session import prelaunch_jvm

    prelaunch_jvm(options.conf, options.master)
    pipeline = load_pipeline(file)
    runs: list[RunningQuery] = []
    with ExitStack() as shown:
        starting = shown.enter_context(console().status(f"Starting {pipeline.name} ..."))

        def on_start(running: "RunningQuery") -> None:
            runs.append(running)
            starting.stop()
            shown.enter_context(logged_to_screen())
            _say_started(pipeline, options, running)

        try:
            summary, done = run_query(pipeline, options, announce=say, on_start=on_start)
        except KeyboardInterrupt:  # the second signal
            for running in runs:
                _say_ended(pipeline, running.summary(), done=False)
            raise
    _say_ended(pipeline, summary, done=done)
    if json:
        print_json(asdict(summary))


def _say_started(pipeline: Pipeline, options: RunOptions, running: "RunningQuery") -> None:
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
        slots = f"{running.slots.formula} task {_slots(running.slots.required)}; " if running.slots else ""
        say(f"{slots}progress is saved every {in_words(options.interval_ms)} in {running.checkpoint_location}")
    else:
        say(f"progress is saved with every batch in {running.checkpoint_location}")
    say("It ends when all existing records are processed." if options.once else "Ctrl-C stops it.")


def _say_ended(pipeline: Pipeline, summary: "RunSummary", *, done: bool) -> None:
    ended = "done" if done else "stopped"
    saved = f"{counted(summary.batches, 'checkpoint')} with {counted(summary.input_rows, 'record')}"
    say(
        f"{ended} after {summary.seconds:g} s: {saved}"
        + ("" if summary.repeats else "; the next start repeats nothing")
    )
    if summary.malformed:
        say(_malformed(pipeline, summary.malformed))
    if summary.refused:
        say(_refused(pipeline, summary.refused))
    for name, cost in summary.python.items():
        say(f"python: {name}: {cost_in_words(asdict(cost))}")
    if summary.repeats:
        say(f"{summary.repeats}: {_repeated(summary)}")


def _repeated(summary: "RunSummary") -> str:
    """Say what the next start processes again, and whether it repeats results."""
    from tailrace.plan.delivery import EFFECTIVELY_ONCE

    if summary.delivery == EFFECTIVELY_ONCE:
        records = f"up to {counted(summary.uncommitted_rows, 'record')}" if summary.uncommitted_rows else "some records"
        return f"the next start may read {records} again; it repeats no result"
    return _repeated_results(summary)


def _repeated_results(summary: "RunSummary") -> str:
    from tailrace.running.ending import RepeatReason

    if summary.repeats is RepeatReason.TASK_FAILED:
        # The count is 0 if it is unknown how far the failed attempt had read: its executor was lost.
        some = f"{summary.uncommitted_rows:,}" if summary.uncommitted_rows else "some"
        return f"the next start may repeat {some} of its records"
    if summary.mode == Mode.MICROBATCH:
        records = f" of {counted(summary.uncommitted_rows, 'record')}" if summary.uncommitted_rows else ""
        return f"the next start repeats the unfinished batch{records}"
    if summary.uncommitted_rows:
        read = counted(summary.uncommitted_rows, "record")
        return f"the next start repeats {read} read since the last checkpoint"
    return "no record was read since the last checkpoint"


def _slots(number: int) -> str:
    return "slot" if number == 1 else "slots"


def _sources(pipeline: Pipeline) -> str:
    return " + ".join(source.in_words for source in pipeline.sources)


def _malformed(pipeline: Pipeline, counts: Mapping[str, int]) -> str:
    """Describe the malformed records and where they are now."""
    where = f"now in {pipeline.dead_letter_topic}" if pipeline.malformed == "dead-letter" else "dropped"
    return f"{counted(sum(counts.values()), 'record')} could not be read ({_by_reason(counts)}): {where}"


def _refused(pipeline: Pipeline, counts: Mapping[str, int]) -> str:
    """Describe the results that Kafka refused and where they are now."""
    total = counted(sum(counts.values()), "result")
    return f"Kafka refused {total} ({_by_reason(counts)}): now in {pipeline.dead_letter_topic}"


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {number:,}" for reason, number in sorted(counts.items()))


def _how(mode: Mode) -> str:
    return "in real time: each record as it arrives" if mode is Mode.REALTIME else "in micro-batches"
