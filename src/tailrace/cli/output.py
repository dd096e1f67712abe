"""The output of commands: messages, JSON, errors and progress."""

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from tailrace.errors import TailraceError
from tailrace.toolchain.ivy import Progress

_verbose = False
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def console() -> Console:
    """Return the console for messages: standard error, so that standard output can be piped."""
    return Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a message."""
    console().print(escape(text))


def print_json(data: Any) -> None:
    """Print data to standard output."""
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def owner_note(owner: str) -> str:
    """Return a note for a list of brokers or clusters; empty for one that was started by hand."""
    return "" if owner == "hand" else "  (ends with the program that started it)"


def print_line(text: str) -> None:
    """Print a line to standard output; escape characters that its encoding lacks."""
    encoding = sys.stdout.encoding
    sys.stdout.write((text + "\n").encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def on_one_line(text: str) -> str:
    """Escape control characters, so that text stays on one line and cannot control the terminal."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


@contextlib.contextmanager
def until_reader_ends() -> Iterator[None]:
    """End the block without an error if the reader of standard output, such as ``head``, has ended."""
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for the last flush
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_error(error: TailraceError) -> None:
    """Print what happened, why and the fix; print details only with ``--verbose``."""
    out = console()
    out.print(f"[bold red]error:[/] {escape(error.what)} [dim]\\[{error.code}][/]")
    if error.why:
        out.print(f"  why: {escape(error.why)}")
    if error.fix:
        out.print(f"  fix: {escape(error.fix)}")
    if _verbose and error.detail:
        out.print("\n" + escape(error.detail), style="dim")


def jar_progress(screen: Console) -> Progress:
    """Show a download's progress: in place on a terminal, a few lines elsewhere."""

    def show(done: int, total: int, name: str) -> None:
        if screen.is_terminal:
            end = "\n" if done == total else "\r"
            screen.print(f"  {done:>3}/{total} {name[:60]:<60}", end=end)
        elif done == total or done % 10 == 0:
            screen.print(f"  {done}/{total} jars")

    return show


@contextlib.contextmanager
def logged_to_screen() -> Iterator[None]:
    """Show Tailrace's log, such as what happens to a running query: warnings, and everything with ``--verbose``."""
    log, handler = logging.getLogger("tailrace"), _Screen()
    before = log.level
    log.addHandler(handler)
    if _verbose:
        log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _Screen(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}: {self.format(record)}")


def is_verbose() -> bool:
    """Return whether ``--verbose`` is set."""
    return _verbose


def _set_verbose(*, value: bool) -> bool:
    global _verbose  # noqa: PLW0603 - one process runs one command
    _verbose = _verbose or value
    return value


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show stack traces.",
        callback=lambda value: _set_verbose(value=value),
        is_eager=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
