"""What tests measure, for the table of a study: `make soak-stops` and `make soak-watch` save it."""

import contextlib
import json
import os
import platform
import statistics
from collections.abc import Iterator
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
    with _report(study) as report:
        row = report.setdefault("seconds", {}).setdefault(name, {})
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
    with _report(study) as report:
        row = report.setdefault("seconds", {}).setdefault(name, {})
        row |= {"records": sent, "per_second": per_second, "lost": lost, "repeated": repeated}


def count(study: str, name: str, kind: str) -> None:
    """Count a run among those of its study.

    Args:
        study: The name of the file.
        name: What happened in the run; runs of the same name are one row.
        kind: What the run was like.
    """
    with _report(study) as report:
        row = report.setdefault("runs", {}).setdefault(name, {"count": 0, "kinds": {}})
        row["count"] += 1
        row["kinds"][kind] = row["kinds"].get(kind, 0) + 1


@contextlib.contextmanager
def _report(study: str) -> Iterator[dict[str, Any]]:
    """Yield the saved report of a study, and save it again."""
    file = Path(FOLDER) / f"{study}.json"
    report: dict[str, Any] = json.loads(file.read_text()) if FOLDER and file.exists() else {}
    yield report
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    if FOLDER:
        file.write_text(json.dumps(report, indent=1) + "\n")
