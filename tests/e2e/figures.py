"""What tests measure, for the table of a study: `make soak-stops` and `make soak-watch` save it."""

import json
import os
import platform
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("TAILRACE_FIGURES", "")
"""Where it is saved; nowhere if it is empty."""


def note(study: str, name: str, seconds: float) -> None:
    """Print a time, which pytest -s shows, and add it to those of its study.

    Args:
        study: The name of the file.
        name: What took that long; times of the same name are one row.
        seconds: The time.
    """
    print(f"\n{name}: {seconds:.2f} s")
    with _row(study, name) as row:
        each = [*row.get("each", []), round(seconds, 3)]
        row |= {"count": len(each), "median": round(statistics.median(each), 3), "longest": max(each), "each": each}


def note_records(study: str, name: str, *, sent: int, seconds: float, lost: int, repeated: int) -> None:
    """Print what became of the records during such times, and add it to their row.

    Args:
        study: The name of the file.
        name: The name of the row.
        sent: How many records were sent.
        seconds: For how long.
        lost: How many of them have no result.
        repeated: How many results were written again.
    """
    per_second = round(sent / seconds)
    print(f"\n{name}: {sent:,} records, {per_second:,}/s, {lost} lost, {repeated} repeated")
    with _row(study, name) as row:
        row |= {"records": sent, "per_second": per_second, "lost": lost, "repeated": repeated}


@contextmanager
def _row(study: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield a row of a study's file, to be changed in place."""
    if not FOLDER:
        yield {}
        return
    file = Path(FOLDER) / f"{study}.json"
    report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"seconds": {}}
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    yield report["seconds"].setdefault(name, {})
    file.write_text(json.dumps(report, indent=1) + "\n")
