"""``tailrace chaos``: what a pipeline loses and repeats under faults."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.arguments import CHECKPOINT_EVERY, GENERATOR, PARTITIONS, PIPELINE_FILE
from tailrace.cli.options import settings_of, shared_option
from tailrace.cli.output import Json, Verbose, console, print_json, say
from tailrace.prepare.options import DEFAULT_PROGRESS_EVERY, DeliveryName, ModeName

if TYPE_CHECKING:
    from tailrace.chaos.result import ChaosResult


def chaos(
    file: Annotated[str, PIPELINE_FILE],
    *,
    generator: Annotated[str, GENERATOR],
    kills: Annotated[int, typer.Option(help="How many faults to inject.", min=1)] = 5,
    fault: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="The faults, in rotation: jvm, driver, both, workers, executor, broker, broker-frozen, disk-full.",
        ),
    ] = "jvm",
    at: Annotated[str, typer.Option(help="When: random, restart (within 2 s after one) or boundary.")] = "random",
    rate: Annotated[float, typer.Option(help="Records per second.", min=1)] = 1000,
    seconds: Annotated[float, typer.Option(help="How long the load lasts at least.", min=1)] = 60,
    outage: Annotated[float, typer.Option(help="Seconds that a broker is frozen or a disk full.", min=0.1)] = 10,
    mode: Annotated[ModeName, shared_option("mode")] = "realtime",
    master: Annotated[str | None, shared_option("master")] = None,
    checkpoint_every: Annotated[str, CHECKPOINT_EVERY] = "10s",
    progress_every: Annotated[str, shared_option("progress_every")] = DEFAULT_PROGRESS_EVERY,
    delivery: Annotated[DeliveryName | None, shared_option("delivery")] = None,
    partitions: Annotated[int, PARTITIONS] = 2,
    topics: Annotated[
        str, typer.Option(metavar="NAME[,NAME]", help="The output topics, if a column names the topic of each row.")
    ] = "",
    conf: Annotated[list[str] | None, shared_option("conf")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder for result and logs; rerun the same command to continue."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a pipeline under load, inject faults, and count what was lost and repeated."""
    from tailrace.chaos.options import ChaosOptions, faults_named, timing_named
    from tailrace.chaos.run import run_chaos
    from tailrace.chaos.screen import ChaosScreen
    from tailrace.measure.studies import generator as records_of

    options = ChaosOptions(
        kills=kills,
        faults=faults_named(fault),
        at=timing_named(at),
        rate=rate,
        seconds=seconds,
        outage_s=outage,
        partitions=partitions,
        topics=tuple(name.strip() for name in topics.split(",") if name.strip()),
        mode=mode,
        master=master,
        checkpoint_every=checkpoint_every,
        progress_every=progress_every,
        delivery=delivery,
        conf=settings_of(conf or []),
    )
    folder = out or Path("tailrace-chaos") / f"{Path(file).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with ChaosScreen(console()) as screen:
        result = run_chaos(file, records_of(generator), options, screen, folder)
    if json:
        print_json(result.to_json())
    else:
        _print_result(result, folder)
    if result.lost:
        raise typer.Exit(1)


def _print_result(result: "ChaosResult", folder: Path) -> None:
    from tailrace.errors import counted

    out = console()
    out.print()
    out.print(result.recovery_table())
    out.print()
    out.print(result.counts_table())
    out.print()
    say(f"{counted(result.sent, 'record')} sent; {result.verdict}")
    say(f"data    {folder / 'result.json'}")
    say(f"logs    {folder / 'logs'}")
