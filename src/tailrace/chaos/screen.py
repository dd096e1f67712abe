"""The progress of a chaos run, on standard error."""

import time
from typing import Self

from rich.console import Console

_LINE_EVERY_S = 10.0
"""The interval between lines if the output is not a terminal."""


class ChaosScreen:
    """Lines about what happened, and one about what happens now."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("") if console.is_terminal else None
        self._shown_at = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, text: str) -> None:
        """Show what happens now: in place on a terminal, a line now and then elsewhere."""
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() - self._shown_at >= _LINE_EVERY_S:
            self._shown_at = time.monotonic()
            self.say(f"  {text}")

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
