"""``tailrace check``: will it run, how many slots, what to change."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from tailrace.cli.costs import cost_in_words
from tailrace.cli.output import BootstrapServers, Json, Verbose, console, print_error, print_json, say
from tailrace.cli.run import settings_of
from tailrace.errors import TailraceError
from tailrace.pipeline import Mode

if TYPE_CHECKING:
    from tailrace.preflight.finding import Finding
    from tailrace.preflight.report import CheckReport, Link

_STYLES = {"error": "bold red", "warning": "yellow", "advice": "cyan"}


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="file.py, file.py:name or module:name.")],
    *,
    mode: Annotated[Mode, typer.Option(help="The mode to check for.")] = Mode.REALTIME,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Real time: how often progress would be saved.", show_default=False)
    ] = None,
    trigger_every: Annotated[str, typer.Option(help="Micro-batch: how often a batch would start.")] = "0ms",
    checkpoint: Annotated[
        str | None, typer.Option(metavar="DIR", help="The checkpoint to go on from; .tailrace/checkpoints/<name>.")
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    master: Annotated[
        str | None, typer.Option(help="Where Spark would run; this machine, with the slots needed, by default.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
    ] = None,
    shuffle_partitions: Annotated[int | None, typer.Option(min=1, help="Tasks after each shuffle.")] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Find out whether a pipeline would run, without starting it; ends with 1 on an error, 2 if it cannot tell."""
    from tailrace.prepare.check import check_pipeline
    from tailrace.prepare.loader import load_pipeline
    from tailrace.prepare.options import RunOptions
    from tailrace.spark_session import prelaunch_jvm

    try:
        options = RunOptions(
            mode,
            bootstrap_servers,
            checkpoint,
            checkpoint_every,
            trigger_every,
            master,
            settings_of(conf or [], shuffle_partitions),
        )
        prelaunch_jvm(options.conf, options.master)
        pipeline = load_pipeline(file)
        with console().status(f"Checking {pipeline.name} ..."):
            report = check_pipeline(pipeline, options, say)
    except TailraceError as failed:
        print_error(failed)
        if json:
            print_json({"ok": None, "error": {"code": failed.code, "what": failed.what, "why": failed.why}})
        raise typer.Exit(2) from failed
    if json:
        print_json(report.as_json())
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def print_report(report: "CheckReport") -> None:
    """What was found, for a person."""
    if report.slots is not None and report.mode is Mode.REALTIME:
        _print_stages(report.slots.stages, report.available)
    _print_latency(report.latency)
    _print_python(report.python)
    if report.checkpoint:
        say(f"progress {report.checkpoint}")
    for finding in report.findings:
        _print_finding(finding)
    how = "in real time" if report.mode is Mode.REALTIME else "in micro-batches"
    counts = {kind: sum(str(each.severity) == kind for each in report.findings) for kind in _STYLES}
    told = ", ".join(f"{number} {_plural(kind, number)}" for kind, number in counts.items())
    say(f"{report.name} {'runs' if report.ok else 'cannot run'} {how}: {told}")


def _print_stages(stages: Sequence[int], available: int) -> None:
    """The tasks of every stage, and their sum against the slots."""
    rows = [("read the topics", stages[0])]
    rows += [(f"after shuffle {number}", tasks) for number, tasks in enumerate(stages[1:], 1)]
    total = sum(stages)
    for word, (name, tasks) in zip(["tasks", *[""] * len(rows)], rows, strict=False):
        say(f"{word:<8} {name:<16} {tasks:>5}")
    say(f"{'':<8} {'together':<16} {total:>5} of {available} slots, for as long as it runs; micro-batch needs 1")


def _print_latency(links: "Sequence[Link]") -> None:
    """About what the settings in force make a record wait, and when."""
    kinds = {link.when: [each for each in links if each.when is link.when] for link in links}
    for word, (when, some) in zip(["latency", *[""] * len(kinds)], kinds.items(), strict=False):
        told = " + ".join(f"{link.name} {link.ms:g}" for link in some)
        say(f"{word:<8} {when}: about {sum(link.ms for link in some):g} ms ({told})")


def _print_python(costs: "Mapping[str, Mapping[str, float]]") -> None:
    """What the Python functions cost when it ran last."""
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
