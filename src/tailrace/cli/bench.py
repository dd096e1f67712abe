"""``tailrace bench``: the benchmark and its studies."""

from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tailrace.cli.arguments import CHECKPOINT_EVERY, GENERATOR, PARTITIONS, PIPELINE_FILE, TRIGGER_EVERY, WARMUP
from tailrace.cli.output import Json, Verbose, console, print_json, say

if TYPE_CHECKING:
    from rich.console import Console

    from tailrace.measure.options import BenchOptions
    from tailrace.measure.study import Study
    from tailrace.report.result import Rates, Result


class _Group(TyperGroup):
    """Treat a first word that is not a command as a pipeline."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the arguments."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["pipeline", *args])


app = typer.Typer(
    cls=_Group,
    help="Latency from intended send to receipt: Kafka alone, micro-batch, real time, and other engines.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Rate = Annotated[float | None, typer.Option(help="Events per second.", min=1)]
Seconds = Annotated[float | None, typer.Option(help="Measured seconds per run.", min=2)]
Warmup = Annotated[float | None, WARMUP]
Payload = Annotated[int | None, typer.Option(help="Bytes of each event.")]
Partitions = Annotated[int | None, PARTITIONS]
CheckpointEvery = Annotated[str | None, CHECKPOINT_EVERY]
TriggerEvery = Annotated[str | None, TRIGGER_EVERY]
Runs = Annotated[int | None, typer.Option(help="Runs of every lane.", min=1)]
Shape = Annotated[str | None, typer.Option(help="The load over time: constant, poisson, burst or step.")]
Work = Annotated[str | None, typer.Option(help="stateless, aggregate, python, window, dedupe or join.")]
Lanes = Annotated[str | None, typer.Option(help="Lanes, separated by commas; --list-lanes shows all.")]
Burst = Annotated[int | None, typer.Option(help="Events sent at once before the warm-up.", min=0)]
ProfileName = Annotated[str, typer.Option("--profile", help="quick, article or full.")]
Out = Annotated[Path | None, typer.Option(help="The folder for result.json, report.html and the histograms.")]
Servers = Annotated[str | None, typer.Option(help="Your broker; by default the benchmark starts its own.")]


@app.callback()
def bench(
    context: typer.Context,
    *,
    profile: ProfileName = "article",
    rate: Rate = None,
    seconds: Seconds = None,
    warmup: Warmup = None,
    payload: Payload = None,
    partitions: Partitions = None,
    checkpoint_every: CheckpointEvery = None,
    trigger_every: TriggerEvery = None,
    runs: Runs = None,
    shape: Shape = None,
    work: Work = None,
    lanes: Lanes = None,
    burst: Burst = None,
    out: Out = None,
    bootstrap_servers: Servers = None,
    list_lanes: Annotated[bool, typer.Option("--list-lanes", help="Print all lanes and exit.")] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure lanes side by side: Kafka alone, micro-batch at 500 ms and real time by default.

    Exit code 0 if the figures are valid, 1 if a run is void, 2 if the benchmark could not run.
    """
    if context.invoked_subcommand is not None:
        # Options before the name of a study apply to the study, too.
        context.obj = _given(locals())
        _require_after(context, "profile", "out", "bootstrap_servers", "list_lanes", "json")
        return
    if list_lanes:
        _print_lanes()
        return
    from tailrace.measure.options import options_of
    from tailrace.measure.studies import lanes_study

    options = options_of(profile, _given(locals()))
    _run(lanes_study(options, profile), options, out, bootstrap_servers, as_json=json)


_CHOICES = (
    "rate",
    "seconds",
    "warmup",
    "payload",
    "partitions",
    "checkpoint_every",
    "trigger_every",
    "runs",
    "shape",
    "work",
    "lanes",
    "burst",
)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user set."""
    chosen = {name: values[name] for name in _CHOICES if values.get(name) is not None}
    if "lanes" in chosen:
        chosen["lanes"] = tuple(name.strip() for name in chosen["lanes"].split(",") if name.strip())
    return chosen


def _chosen(context: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the user set before or after a study's name, over the defaults of the study."""
    own = _given(values)
    defaults = {name: value for name, value in own.items() if not _is_given(context, name)}
    return {**defaults, **context.obj, **{name: value for name, value in own.items() if name not in defaults}}


def _require_after(context: typer.Context, *names: str) -> None:
    """Refuse options that do not reach the study."""
    from tailrace.errors import OptionRefused

    for name in names:
        if _is_given(context, name):
            option = f"--{name.replace('_', '-')}"
            fix = "omit it: a study has no profile" if name == "profile" else f"put {option} after the name"
            raise OptionRefused(f"{option} must come after the study's or pipeline's name", fix=fix)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _print_lanes() -> None:
    from tailrace.measure.lanes import all_lanes

    for name, lane in all_lanes().items():
        typer.echo(f"{name:<28} {lane.title:<48} {', '.join(sorted(lane.works))}")


def _run(study: "Study", options: "BenchOptions", out: Path | None, servers: str | None, *, as_json: bool) -> None:
    """Run a study, write its files, print its table."""
    from tailrace.measure.run import open_bench
    from tailrace.measure.screen import Screen
    from tailrace.measure.study import run_study
    from tailrace.report import write_report

    folder = out or _new_folder(study.name)
    screen_console = console()
    with Screen(screen_console) as screen, open_bench(servers, options.partitions, screen.say) as place:
        result = run_study(study, place, screen, folder)
    write_report(result, folder / "report.html")
    if as_json:
        print_json(result.to_json())
    else:
        _print_figures(result, screen_console)
        say(f"report  {folder / 'report.html'}")
        say(f"data    {folder / 'result.json'}")
    if not result.valid:
        for sentence in result.verdict:
            say(f"void: {sentence}")
        raise typer.Exit(1)


def _print_figures(result: "Result", screen: "Console") -> None:
    """Print a table and the ratios for each group of lanes that can be compared."""
    from tailrace.measure.screen import closing_table
    from tailrace.report.lines import groups_of

    groups = groups_of(result)
    for group in groups:
        screen.print()
        if len(groups) > 1:
            screen.print(group.title, highlight=False, markup=False)
        screen.print(closing_table((line.label, line.lane) for line in group.lines))
        screen.print()
        _print_ratios(result, {line.key for line in group.lines})
    for sentence in result.declined:
        say(f"no ratio: {sentence}")
    if result.rates is not None:
        _print_sustained(result.rates)


def _print_sustained(rates: "Rates") -> None:
    for name, lane in rates.lanes.items():
        highest = lane.highest_per_s
        sustained = f"sustains {highest:,.0f}/s" if highest is not None else "sustains none of these rates"
        say(f"{name}: {sustained} with p99 below {rates.bound_ms:g} ms")


def _print_ratios(result: "Result", keys: Container[str]) -> None:
    for each in (each for each in result.ratios if each.slow in keys):
        spread = f" ({each.low:,.1f} to {each.high:,.1f} over {each.runs} runs)" if each.runs > 1 else ""
        slow, fast = result.lanes[each.slow].title, result.lanes[each.fast].title
        say(f"{each.percentile:<6} {slow}: {each.median:,.1f} times {fast}{spread}")


@app.command("sweep")
def sweep(
    context: typer.Context,
    *,
    intervals: Annotated[str, typer.Option(help="Trigger intervals in milliseconds.")] = "0,50,100,200,500,1000,2000",
    seconds: Seconds = 20,
    warmup: Warmup = 15,
    rate: Rate = None,
    runs: Runs = None,
    out: Out = None,
    bootstrap_servers: Servers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure latency against the trigger interval of micro-batch."""
    from tailrace.measure.options import options_of
    from tailrace.measure.studies import sweep_study

    options = options_of("article", _chosen(context, locals()))
    chosen = tuple(_whole_numbers(intervals, "--intervals", least=0))
    _run(sweep_study(options, chosen), options, out, bootstrap_servers, as_json=json)


@app.command("engines")
def engines(
    context: typer.Context,
    *,
    works: Annotated[str, typer.Option(help="Works, separated by commas.")] = "stateless,aggregate,python",
    rates: Annotated[str, typer.Option(help="Rates, separated by commas.")] = "200,2000,8000",
    lanes: Lanes = None,
    seconds: Seconds = 20,
    warmup: Warmup = 15,
    burst: Burst = None,
    runs: Runs = 3,
    out: Out = None,
    bootstrap_servers: Servers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure Flink, PyFlink, Kafka Streams and Quix Streams at the same work, by default and tuned."""
    from tailrace.errors import OptionRefused
    from tailrace.measure.options import options_of
    from tailrace.measure.studies import engines_study
    from tailrace.measure.works import Work as Kind

    given = _chosen(context, locals())
    names = given.pop("lanes", ())
    options = options_of("article", given)
    try:
        kinds = tuple(Kind(word.strip()) for word in works.split(","))
    except ValueError:
        raise OptionRefused(f"invalid --works {works}", fix=f"use one or more of: {', '.join(Kind)}") from None
    per_second = tuple(float(number) for number in _whole_numbers(rates, "--rates"))
    _run(engines_study(options, kinds, per_second, names), options, out, bootstrap_servers, as_json=json)


@app.command("rates")
def rates(
    context: typer.Context,
    *,
    ladder: Annotated[str, typer.Option(help="Rates, separated by commas.")] = (
        "10,100,500,1000,2000,4000,8000,12000,16000,24000"
    ),
    bound: Annotated[float, typer.Option(help="The limit of p99, in milliseconds.", min=1)] = 100,
    work: Work = None,
    lanes: Lanes = "realtime",
    seconds: Seconds = 20,
    warmup: Warmup = 15,
    runs: Runs = None,
    out: Out = None,
    bootstrap_servers: Servers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """The highest rate that each lane sustains with its 99th percentile below a bound."""
    from tailrace.measure.options import options_of
    from tailrace.measure.studies import rates_study

    options = options_of("article", _chosen(context, locals()))
    rungs = [float(number) for number in _whole_numbers(ladder, "--ladder")]
    _run(rates_study(options, rungs, bound), options, out, bootstrap_servers, as_json=json)


@app.command("gap")
def gap(
    context: typer.Context,
    *,
    intervals: Annotated[str, typer.Option(help="Checkpoint intervals in seconds.")] = "5,10,30",
    kills: Annotated[bool, typer.Option(help="Also kill the engine and count what it replays.")] = True,
    rate: Rate = 1000,
    seconds: Seconds = 30,
    warmup: Warmup = 20,
    runs: Runs = None,
    out: Out = None,
    bootstrap_servers: Servers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure what a checkpoint costs in real time, part by part, and what a crash replays."""
    from tailrace.measure.options import options_of
    from tailrace.measure.studies import gap_study

    options = options_of("article", _chosen(context, locals()))
    chosen = _whole_numbers(intervals, "--intervals")
    _run(gap_study(options, chosen, kills=kills), options, out, bootstrap_servers, as_json=json)


@app.command("study", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def study(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One of --list.")] = None,
    *,
    list_studies: Annotated[bool, typer.Option("--list", help="Print all studies and exit.")] = False,
    out: Out = None,
    verbose: Verbose = False,
) -> None:
    """Run a named study. Options after NAME override its own: study gap --intervals 5."""
    from tailrace.errors import OptionRefused
    from tailrace.measure.options import STUDIES, study_named

    if list_studies:
        for each in STUDIES.values():
            typer.echo(f"{each.name:<20} {each.minutes:>3} min  {each.question}")
        return
    if name is None:
        raise OptionRefused(
            "no study given", fix="run tailrace bench study NAME; tailrace bench study --list shows all names"
        )
    chosen = study_named(name)
    if context.obj:
        option = f"--{next(iter(context.obj)).replace('_', '-')}"
        raise OptionRefused(f"{option} must come after the study's name", fix=f"put {option} after {name}")
    folder = out or _new_folder(name)
    arguments = [*chosen.arguments, "--out", str(folder), *context.args]
    group: Any = context.parent and context.parent.command
    with group.make_context("bench", arguments, parent=context.parent.parent if context.parent else None) as inner:
        group.invoke(inner)


@app.command("lineage", hidden=True)
def lineage(
    *,
    rounds: Annotated[int, typer.Option(help="Measured runs of each lane.", min=1)] = 4,
    seconds: Annotated[float, typer.Option(help="Measured seconds per run.", min=2)] = 20,
    warmup: Annotated[float, WARMUP] = 10,
    rate: Annotated[float, typer.Option(help="Payments per second.", min=10)] = 2000,
    out: Out = None,
    verbose: Verbose = False,
) -> None:
    """Measure what lineage costs: the demo's pipeline with and without it."""
    from tailrace.demo.feature_costs import LineageOptions, measure_lineage

    _write_json(measure_lineage(LineageOptions(rounds, seconds, warmup, rate), say).as_json(), "lineage", out)


@app.command("static-table", hidden=True)
def static_table(
    *,
    rows: Annotated[str, typer.Option(help="Sizes of the table.")] = "0,1000,100000,1000000",
    checkpoints: Annotated[int, typer.Option(help="Checkpoints per size.", min=1)] = 5,
    out: Out = None,
    verbose: Verbose = False,
) -> None:
    """Measure what a static table in a broadcast join costs at each checkpoint."""
    from tailrace.demo.feature_costs import measure_static_tables

    sizes = _whole_numbers(rows, "--rows", least=0)
    _write_json(measure_static_tables(sizes, checkpoints, say).as_json(), "static-table", out)


def _write_json(data: dict[str, Any], name: str, out: Path | None) -> None:
    from json import dumps

    folder = out or _new_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(dumps(data, indent=2) + "\n")
    say(f"data    {folder / f'{name}.json'}")


def _new_folder(name: str) -> Path:
    return Path("tailrace-bench") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with the result.json of a benchmark.")],
    *,
    verbose: Verbose = False,
) -> None:
    """Render DIR/report.html from DIR/result.json."""
    from tailrace.report import read_result, write_report

    page = folder / "report.html"
    write_report(read_result(folder / "result.json"), page)
    say(f"report  {page}")


@app.command("pipeline", hidden=True)
def pipeline(
    context: typer.Context,
    spec: Annotated[str, PIPELINE_FILE],
    *,
    generator: Annotated[str | None, GENERATOR] = None,
    replay: Annotated[str | None, typer.Option(help="The topic whose records to replay.")] = None,
    replay_from: Annotated[str | None, typer.Option(help="The broker of that topic.")] = None,
    replay_limit: Annotated[int, typer.Option(help="The maximum number of records to replay.", min=1)] = 100_000,
    rate: Rate = None,
    seconds: Seconds = None,
    warmup: Warmup = None,
    partitions: Partitions = None,
    checkpoint_every: CheckpointEvery = None,
    trigger_every: TriggerEvery = None,
    runs: Runs = None,
    shape: Shape = None,
    lanes: Annotated[str | None, typer.Option(help="One or more of floor, microbatch and realtime.")] = None,
    burst: Burst = None,
    out: Out = None,
    bootstrap_servers: Servers = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Measure your pipeline in both modes, on your records."""
    import tempfile

    from tailrace.errors import OptionRefused
    from tailrace.kafka.bootstrap import resolve_bootstrap_servers
    from tailrace.measure import studies as own
    from tailrace.measure.options import options_of

    if (generator is None) == (replay is None):
        raise OptionRefused(
            "no records to send" if generator is None else "--generator and --replay are both given",
            fix="use either --generator FILE:FUNCTION or --replay TOPIC",
        )
    options = options_of("article", _chosen(context, locals()))
    with tempfile.TemporaryDirectory(prefix="tailrace-replay-") as folder:
        if generator is not None:
            records: Any = own.generator(generator)
        else:
            servers = resolve_bootstrap_servers(replay_from)
            records = own.replay(servers, replay or "", replay_limit, Path(folder))
        study = own.pipeline_study(spec, options, records)
        _run(study, options, out, bootstrap_servers, as_json=json)


def _whole_numbers(text: str, what: str, least: int = 1) -> list[int]:
    from tailrace.errors import OptionRefused

    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < least:
        raise OptionRefused(f"{what} {text} is not a list of numbers", fix=f"use whole numbers: {what} 100,200,500")
    return numbers
