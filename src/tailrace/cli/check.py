"""``tailrace check``: will it run, how many slots, what to change."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from tailrace.cli.arguments import PIPELINE_FILE
from tailrace.cli.costs import cost_in_words
from tailrace.cli.options import takes_run_options
from tailrace.cli.output import Json, Verbose, console, print_error, print_json, say
from tailrace.errors import TailraceError
from tailrace.pipeline import Mode
from tailrace.prepare.options import RunOptions

if TYPE_CHECKING:
    from tailrace.preflight.finding import Finding
    from tailrace.preflight.report import CheckReport, Link

_TASKS_SHOWN = 8
_NAMES_SHOWN = 8
_STYLES = {"error": "bold red", "warning": "yellow", "advice": "cyan"}


def _reports_failure(command: Callable[..., None]) -> Callable[..., None]:
    """Report what keeps a check from an answer, options included; with ``--json`` also as data."""

    @functools.wraps(command)
    def reporting(*, json: bool, **given: object) -> None:
        try:
            command(json=json, **given)
        except TailraceError as failed:
            print_error(failed)
            if json:
                print_json({"ok": None, "error": {"code": failed.code, "what": failed.what, "why": failed.why}})
            raise typer.Exit(2) from failed

    return reporting


@_reports_failure
@takes_run_options
def check(
    file: Annotated[str, PIPELINE_FILE],
    *,
    options: RunOptions,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check whether a pipeline would run, without starting it. Exit code 1: it would not; 2: it cannot be checked."""
    from tailrace.prepare.check import check_query
    from tailrace.prepare.loader import load_pipeline
    from tailrace.spark_session import prelaunch_jvm

    prelaunch_jvm(options.conf, options.master)
    pipeline = load_pipeline(file)
    with console().status(f"Checking {pipeline.name} ..."):
        report = check_query(pipeline, options, say)
    if json:
        print_json(report.as_json())
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def print_report(report: "CheckReport") -> None:
    """Print the report for a person."""
    if report.slots is not None and report.mode is Mode.REALTIME:
        _print_stages(report.slots.stages, report.available)
        _print_reads(report.reads)
    _print_latency(report.latency)
    _print_python(report.python)
    if report.checkpoint:
        say(f"progress {report.checkpoint}")
    if report.delivery is not None:
        say(f"delivery {report.delivery.in_words}")
    for reason in report.why_microbatch:
        say(f"not in real time: {reason.title} [{reason.code}]")
    for finding in report.findings:
        _print_finding(finding)
    how = "in real time" if report.mode is Mode.REALTIME else "in micro-batches"
    counts = {kind: sum(str(each.severity) == kind for each in report.findings) for kind in _STYLES}
    total = ", ".join(f"{number} {_plural(kind, number)}" for kind, number in counts.items())
    say(f"{report.name} {'runs' if report.ok else 'cannot run'} {how}: {total}")


def _print_stages(stages: Sequence[int], available: int) -> None:
    """Print the tasks of every stage, and their sum against the slots."""
    rows = [("read the topics", stages[0])]
    rows += [(f"after shuffle {number}", tasks) for number, tasks in enumerate(stages[1:], 1)]
    total = sum(stages)
    needed = f"{total:>5} {'slot' if total == 1 else 'slots'} needed"
    for word, (name, tasks) in zip(["tasks", *[""] * len(rows)], rows, strict=False):
        say(f"{word:<8} {name:<16} {tasks:>5}")
    say(f"{'':<8} {'total':<16} {needed}, {available} available; micro-batch needs 1")


def _print_reads(tasks: Sequence[str]) -> None:
    """Print which task reads what, if partitions share tasks."""
    if any(", " in each for each in tasks):
        lines = [f"task {number}: {_shortened(each.split(', '))}" for number, each in enumerate(tasks[:_TASKS_SHOWN])]
        lines += [f"and {len(tasks) - _TASKS_SHOWN} more tasks"] if len(tasks) > _TASKS_SHOWN else []
        for word, line in zip(["reads", *[""] * len(lines)], lines, strict=False):
            say(f"{word:<8} {line}")


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _print_latency(links: "Sequence[Link]") -> None:
    """Print how long a record waits with the current settings, and when."""
    kinds = {link.when: [each for each in links if each.when is link.when] for link in links}
    for word, (when, some) in zip(["latency", *[""] * len(kinds)], kinds.items(), strict=False):
        parts = " + ".join(f"{link.name} {link.ms:g}" for link in some)
        say(f"{word:<8} {when}: about {sum(link.ms for link in some):g} ms ({parts})")


def _print_python(costs: "Mapping[str, Mapping[str, float]]") -> None:
    """Print the cost of the Python functions in the last run."""
    for word, (name, cost) in zip(["python", *[""] * len(costs)], costs.items(), strict=False):
        say(f"{word:<8} {name}: {cost_in_words(cost)}, in the last run")


def _print_finding(finding: "Finding") -> None:
    out = console()
    kind = str(finding.severity)
    title = f"[{_STYLES[kind]}]{kind:<8}[/] {escape(finding.title)} [dim]\\[{finding.code}][/]"
    out.print(title, soft_wrap=True)
    for word, text in (("at", finding.where), ("why", finding.why), ("fix", finding.fix)):
        if text:
            out.print(f"  {word + ':':<6} {escape(text)}", soft_wrap=True)


def _plural(kind: str, number: int) -> str:
    return kind if number == 1 or kind == "advice" else f"{kind}s"
