"""The journal of a chaos run: what is done, in a file that survives an interruption."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import OptionRefused


@dataclass(frozen=True)
class FaultRecord:
    """A fault and the recovery from it.

    Attributes:
        number: Its number, from 1.
        fault: What it was.
        moment: When it happened: ``random``, ``restart``, or where in a checkpoint boundary.
        at_s: Seconds since the load began, without the time between an interruption and its continuation.
        recovery_ms: From the fault to the first output of a record that was sent after it.
        restarted: Whether the pipeline ended and was started again.
    """

    number: int
    fault: str
    moment: str
    at_s: float
    recovery_ms: int
    restarted: bool


class Journal:
    """The faults of a run, one line of JSON each; the first line says which run it is."""

    def __init__(self, file: Path, fingerprint: str) -> None:
        """Open or begin it.

        Raises:
            OptionRefused: It belongs to a run with other options.
        """
        self._file = file
        self.faults: list[FaultRecord] = []
        self.load_s = 0.0
        """How long the load has lasted."""
        lines = self._read()
        self.is_resumed = bool(lines)
        """Whether an interrupted run can continue."""
        if not lines:
            self._write({"fingerprint": fingerprint})
            return
        if lines[0].get("fingerprint") != fingerprint:
            raise OptionRefused(
                f"{file.parent} has an unfinished chaos run with other options",
                fix=f"use its options to continue it, use another --out, or remove it: rm -r {file.parent}",
            )
        for line in lines[1:]:
            self.load_s = float(line.pop("load_s"))
            self.faults.append(FaultRecord(**line))

    def add(self, record: FaultRecord, load_s: float) -> None:
        """Save a fault from which the pipeline has recovered."""
        self.faults.append(record)
        self.load_s = load_s
        self._write({**asdict(record), "load_s": round(load_s, 1)})

    def _read(self) -> list[dict[str, Any]]:
        if not self._file.exists():
            return []
        # A kill may have interrupted the write of the last line.
        complete, _, incomplete = self._file.read_text().rpartition("\n")
        if incomplete:
            self._file.write_text(f"{complete}\n" if complete else "")
        return [json.loads(line) for line in complete.splitlines()]

    def _write(self, line: dict[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")
