"""``tailrace demo``: the main job, measured."""

from typing import Annotated

import typer

from tailrace.cli.arguments import CHECKPOINT_EVERY, PARTITIONS, TRIGGER_EVERY, WARMUP
from tailrace.cli.output import Json, Verbose, console, print_json, say


def demo(
    *,
    seconds: Annotated[float, typer.Option(help="Measured seconds per lane.", min=1)] = 25,
    warmup: Annotated[float, WARMUP] = 15,
    rate: Annotated[float, typer.Option(help="Payments per second.", min=1)] = 2000,
    partitions: Annotated[int, PARTITIONS] = 2,
    checkpoint_every: Annotated[str, CHECKPOINT_EVERY] = "5m",
    trigger_every: Annotated[str, TRIGGER_EVERY] = "500ms",
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Card payments through Kafka and PySpark: real time against micro-batch, measured on this machine."""
    from tailrace.demo.run import PIPELINE_FILE, TITLES, DemoOptions, run_demo
    from tailrace.measure.screen import Screen, closing_table
    from tailrace.prepare.duration import parse_duration_ms

    options = DemoOptions(seconds, warmup, rate, partitions, checkpoint_every, trigger_every)
    out = console()
    with Screen(out) as screen:
        results = run_demo(options, screen)
    if json:
        print_json({"lanes": {lane: result.as_json() for lane, result in results.items()}})
        return
    out.print()
    titles = {**TITLES, "microbatch": f"{TITLES['microbatch']} {trigger_every}"}
    out.print(closing_table((titles[lane], result) for lane, result in results.items()))
    out.print()
    fast, slow = results["realtime"].p50_ms, results["microbatch"].p50_ms
    if fast and slow:
        say(f"Half of the decisions in real time came within {fast:.2f} ms: {slow / fast:,.0f} times sooner.")
    if parse_duration_ms(checkpoint_every, "--checkpoint-every") > 1000 * (seconds + warmup):
        say(
            f"Real time saves a checkpoint every {checkpoint_every}, so there was none in these {seconds:g} s. Each "
            "one pauses the output for a moment: use --checkpoint-every 10s to see it."
        )
    say("")
    say("What to try next:")
    say(f"  the pipeline            {PIPELINE_FILE}")
    say("  your own                tailrace broker start, then: tailrace run FILE --mode realtime")
    say("  the same, batched       tailrace run FILE --mode microbatch")
