"""Times that tests measure, for the table of a study: `make soak-stops` and `make soak-watch` save them."""

import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("TAILRACE_FIGURES", "")
"""Where the times are saved; nowhere if it is empty."""


def note(study: str, name: str, seconds: float) -> None:
    """Print a time, which pytest -s shows, and add it to those of its study.

    Args:
        study: The name of the file.
        name: What took that long; times of the same name are one row.
        seconds: The time.
    """
    print(f"\n{name}: {seconds:.2f} s")
    if not FOLDER:
        return
    file = Path(FOLDER) / f"{study}.json"
    report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"seconds": {}}
    report["machine"] = {
        "cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
    }  # fmt: skip
    each = [*report["seconds"].get(name, {}).get("each", []), round(seconds, 3)]
    report["seconds"][name] = {
        "count": len(each), "median": round(statistics.median(each), 3), "longest": max(each), "each": each,
    }  # fmt: skip
    file.write_text(json.dumps(report, indent=1) + "\n")
