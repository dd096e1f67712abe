"""``tailrace init``: a project that works at once."""

import shlex
from typing import Annotated

import typer

from tailrace.cli.output import Verbose, say


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to create; the pipeline gets its name.")],
    *,
    verbose: Verbose = False,
) -> None:
    """Create a folder with a pipeline and its tests."""
    from tailrace.project.folder import FILES, make_project

    project = make_project(name)
    say(f"pipeline {project.pipeline!r} is in {project.folder}: {', '.join(FILES)}")
    say("")
    say("What to do next:")
    for what, command in _next_steps(name):
        say(f"  {what:<24} {command}")


def _next_steps(folder: str) -> list[tuple[str, str]]:
    """Return the steps of the project's README."""
    return [
        ("enter the folder", f"cd {shlex.quote(folder)}"),
        ("test it in every mode", "pytest"),
        ("start a broker", "tailrace broker start"),
        ("create the topics", "tailrace broker topic payments decisions"),
        ("send a payment", """tailrace broker send payments '{"id": 1, "card": "ann", "amount": 9000}'"""),
        ("run it once", "tailrace run pipeline.py --once"),
        ("read the decision", "tailrace broker read decisions"),
        ("run it until Ctrl-C", "tailrace run pipeline.py"),
    ]
