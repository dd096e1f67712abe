"""Arguments and options that several commands have, besides those of :class:`RunOptions`."""

import typer

PIPELINE_FILE = typer.Argument(metavar="FILE", help="file.py, file.py:name or module:name.")
GENERATOR = typer.Option(help="FILE:FUNCTION that returns the records: function(0), function(1), ...")
WARMUP = typer.Option(help="Warm-up seconds before the window.", min=0)
PARTITIONS = typer.Option(help="Partitions of each topic.", min=1)
CHECKPOINT_EVERY = typer.Option(
    help="Real time: the checkpoint interval. Records are written as they arrive, not at the next one."
)
TRIGGER_EVERY = typer.Option(help="Micro-batch: the trigger interval.")
