"""``tailrace dlq``: the dead letters of a pipeline."""

import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tailrace.cli.arguments import PIPELINE_FILE, BootstrapServers
from tailrace.cli.options import settings_of
from tailrace.cli.output import (
    Json,
    Verbose,
    console,
    print_json,
    print_line,
    say,
    until_reader_ends,
)
from tailrace.errors import counted

if TYPE_CHECKING:
    from tailrace.dead_letters.queue import Queue
    from tailrace.dead_letters.replay import Destination, Replay, Tally

app = typer.Typer(help="The dead letters of a pipeline: list, show and replay them.", no_args_is_help=True)

File = Annotated[str, PIPELINE_FILE]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", metavar="REASON", help="Only letters with this reason; may be repeated."),
]
Since = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION|TIME", help="Only letters since then: 1h, or a time with its zone (2026-01-31T09:00Z)."
    ),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", metavar="TOPIC-PARTITION@OFFSET", help="Only the letter of this source record; may be repeated."
    ),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--letter",
        metavar="PARTITION@OFFSET",
        help="Only the letter at this place in the dead-letter topic; may be repeated.",
    ),
]


@app.command("list")
def list_(
    file: File,
    *,
    reason: Reasons = None,
    since: Since = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most lines.")] = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Count the dead letters by reason and source topic."""
    from tailrace.cli.letters import as_time, lines_of
    from tailrace.dead_letters.group import groups_of
    from tailrace.dead_letters.selection import Selection

    selection = Selection.of(reasons=reason or (), since=since)
    queue = _queue(file, bootstrap_servers)
    groups = groups_of(queue.letters(selection))
    total, shown = sum(group.count for group in groups), groups[:limit]
    with until_reader_ends():
        if json:
            times = [{"first": as_time(each.first_ms), "last": as_time(each.last_ms)} for each in shown]
            data = [
                {"reason": each.reason, "topic": each.topic, "count": each.count, **time, "error": each.error}
                for each, time in zip(shown, times, strict=True)
            ]
            print_json(_head(queue) | {"letters": total, "groups": data})
        elif shown:
            for line in lines_of(shown):
                print_line(line)
    if not total:
        _say_none(queue, selected=selection != Selection())
        return
    more = f"; --limit hides {counted(len(groups) - len(shown), 'line')}" if len(groups) > len(shown) else ""
    say(f"{counted(total, 'dead letter')} of pipeline {queue.pipeline.name} in topic {queue.topic}{more}")


@app.command()
def show(
    file: File,
    *,
    reason: Reasons = None,
    since: Since = None,
    at: At = None,
    letter: Places = None,
    limit: Annotated[int, typer.Option(min=1, help="The most letters, the newest first.")] = 10,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long values.")] = False,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Print dead letters with their error, key, value and headers."""
    from tailrace.cli.letters import as_json, paragraph_of
    from tailrace.dead_letters.letter import newest
    from tailrace.dead_letters.selection import Selection

    selection = Selection.of(reasons=reason or (), since=since, at=at or (), letters=letter or ())
    queue = _queue(file, bootstrap_servers)
    shown, total = newest(queue.letters(selection), limit)
    with until_reader_ends():
        if json:
            print_json(_head(queue) | {"total": total, "letters": [as_json(each) for each in shown]})
        else:
            for each in shown:
                for line in paragraph_of(each, full=full):
                    print_line(line)
    if not total:
        _say_none(queue, selected=selection != Selection())
    elif total > len(shown):
        say(f"the newest {len(shown)} of {counted(total, 'dead letter')}; --limit shows more")


@app.command()
def replay(
    file: File,
    *,
    to: Annotated[
        Literal["source", "pipeline"],
        typer.Option(
            help="source: send the records to their source topics, for the running pipeline. "
            "pipeline: process them in a run of their own."
        ),
    ],
    reason: Reasons = None,
    since: Since = None,
    at: At = None,
    letter: Places = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most letters to replay.")] = None,
    max_attempt: Annotated[int, typer.Option(min=1, help="Skip letters with more attempts than this.")] = 5,
    again: Annotated[bool, typer.Option("--again", help="Also replay letters that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the letters.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="--to pipeline: the Spark master. Default: this machine.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="--to pipeline: Spark settings.")] = None,
    bootstrap_servers: BootstrapServers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Process dead letters again, each once. The next command continues where this one is interrupted."""
    from tailrace.cli.letters import in_words
    from tailrace.dead_letters.progress import Progress
    from tailrace.dead_letters.replay import Replay, Tally
    from tailrace.dead_letters.selection import Selection

    selection = Selection.of(reasons=reason or (), since=since, at=at or (), letters=letter or ())
    settings = settings_of(conf or [])
    queue = _queue(file, bootstrap_servers)
    tally = Tally()
    if queue.exists:
        progress = Progress(queue.pipeline.name, queue.topic_id())
        replaying = Replay(queue, selection, progress, max_attempt, limit, again)
        tally = replaying.preview()
    if not queue.exists or tally == Tally():
        _say_none(queue, selected=selection != Selection())
    else:
        say(in_words(tally, "to replay", max_attempt))
    if tally.letters and not dry_run:
        if not yes and sys.stdin.isatty() and not typer.confirm(_question(to, tally), err=True):
            say("nothing is replayed")
            return
        with ExitStack() as opened:
            opened.enter_context(progress.held())
            with console().status(f"Starting {queue.pipeline.name} ..."):
                destination = opened.enter_context(_destination(queue, to, master, settings))
            tally = _replayed(replaying, destination, max_attempt)
    if json:
        print_json(_head(queue) | {"to": to, "dry_run": dry_run} | tally.as_json())


def _queue(file: str, bootstrap_servers: str | None) -> "Queue":
    from tailrace.dead_letters.queue import open_queue
    from tailrace.prepare.loader import load_pipeline

    return open_queue(load_pipeline(file), bootstrap_servers)


def _head(queue: "Queue") -> dict[str, Any]:
    """Return the beginning of the JSON of each command."""
    return {"pipeline": queue.pipeline.name, "topic": queue.topic, "exists": queue.exists}


def _say_none(queue: "Queue", *, selected: bool) -> None:
    if not queue.exists:
        say(f"pipeline {queue.pipeline.name} has no dead letters: topic {queue.topic} does not exist yet")
    elif selected:
        say(f"no dead letter of pipeline {queue.pipeline.name} in topic {queue.topic} matches")
    else:
        say(f"pipeline {queue.pipeline.name} has no dead letters in topic {queue.topic}")


def _question(to: str, tally: "Tally") -> str:
    place = "to the source topics" if to == "source" else "through the pipeline"
    return f"Send {counted(tally.letters, 'letter')} {place}?"


def _destination(
    queue: "Queue", to: str, master: str | None, settings: dict[str, str]
) -> AbstractContextManager["Destination"]:
    """Return where the letters go; for the pipeline, with a Spark that has started."""
    if to == "source":
        from tailrace.dead_letters.to_source import ToSource

        return nullcontext(ToSource(queue.config))
    from tailrace.dead_letters.to_pipeline import replaying_pipeline

    return replaying_pipeline(queue.pipeline, queue.bootstrap_servers, master=master, conf=settings, announce=say)


def _replayed(replaying: "Replay", destination: "Destination", max_attempt: int) -> "Tally":
    """Replay the letters, and say how many were replayed even if not all were."""
    from tailrace.cli.letters import in_words
    from tailrace.dead_letters.replay import Tally

    tally = Tally()
    try:
        with console().status("Replaying ..."):
            replaying.run(destination, tally)
    except BaseException:
        say(f"{counted(tally.letters, 'letter')} replayed; the same command continues with the others")
        raise
    say(in_words(tally, "replayed", max_attempt))
    return tally
