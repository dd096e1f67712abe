"""Arguments and options that several commands have, besides those of ``run`` and ``check``."""

from typing import Annotated

import typer

from tailrace.cli.options import shared_option

PIPELINE_FILE = typer.Argument(metavar="FILE", help="file.py, file.py:name or module:name.")
GENERATOR = typer.Option(help="FILE:FUNCTION that returns the records: function(0), function(1), ...")
WARMUP = typer.Option(help="Warm-up seconds before the window.", min=0)
PARTITIONS = typer.Option(help="Partitions of each topic.", min=1)
CHECKPOINT_EVERY = shared_option("checkpoint_every")
TRIGGER_EVERY = shared_option("trigger_every")
BootstrapServers = Annotated[str | None, shared_option("bootstrap_servers")]
