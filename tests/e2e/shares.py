"""The order of the tests when several workers share them.

pytest-xdist gives each worker a part of the list, and one that is done takes tests from the end of another's part. So
every part begins with long tests, about as many seconds of them as any other part, and ends with short ones: all
workers then end at the same time. The tests of a file stay together, because they share brokers and sessions.

``seconds.json`` has what was measured. To measure again::

    make test PYTEST="--junitxml=times.xml"
    python tests/e2e/shares.py times.xml
"""

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = Path(__file__).with_name("seconds.json")
LONG = ("tests/e2e/", "tests/spark/")
"""Where tests start Spark or Kafka."""
UNKNOWN_S = 20.0
"""For a new file of long tests."""
SHARING = {"tests/e2e/test_exact_stop_cluster.py": "tests/e2e/test_cluster.py"}
"""Files that share a cluster. It takes long to start, so their tests are not dealt by themselves."""
_ALONE_S = 25.0
"""A test that takes longer is dealt by itself: its file would be too much for one worker."""


@dataclass
class _Part:
    room: int
    seconds: float = 0.0
    tests: list[str] = field(default_factory=list)


def in_shares(tests: Sequence[str], workers: int, seconds: Mapping[str, float]) -> list[str]:
    """Return the ids of tests in an order for that many workers.

    Args:
        tests: The ids as collected.
        workers: Each takes an equal part of the list, in turn.
        seconds: How long a file takes, or a test that does not stay with its file.
    """
    units: dict[str, list[str]] = {}
    short: list[str] = []
    for test in tests:
        if test.startswith(LONG):
            units.setdefault(test if test in seconds else _unit(test), []).append(test)
        else:
            short.append(test)
    parts = [_Part(size) for size in _sizes(len(tests), workers)]
    for unit in sorted(units, key=lambda unit: -seconds.get(unit, UNKNOWN_S)):
        fitting = [part for part in parts if part.room >= len(part.tests) + len(units[unit])] or parts
        least = min(fitting, key=lambda part: part.seconds)
        least.tests += units[unit]
        least.seconds += seconds.get(unit, UNKNOWN_S)
    ordered: list[str] = []
    for part in parts:
        filling = max(0, part.room - len(part.tests))
        ordered += part.tests + short[:filling]
        del short[:filling]
    return ordered + short


def _unit(test: str) -> str:
    """Return what a test stays with: its file, or the file that it shares a cluster with."""
    file = test.partition("::")[0]
    return SHARING.get(file, file)


def _sizes(tests: int, workers: int) -> list[int]:
    """Return the sizes of the parts as pytest-xdist cuts them."""
    sizes = []
    for remaining in range(workers, 0, -1):
        sizes.append(tests // remaining)
        tests -= sizes[-1]
    return sizes


def measured(report: Path) -> dict[str, float]:
    """Return the seconds of each file, and of each test that takes long, from a report in JUnit's format."""
    seconds: Counter[str] = Counter()
    for case in ET.parse(report).getroot().iter("testcase"):
        test, took = _id(case), float(case.get("time", "0"))
        if test.startswith(LONG):
            unit = _unit(test)
            alone = took > _ALONE_S and unit not in SHARING.values()
            seconds[test if alone else unit] += took  # type: ignore[assignment]
    return {unit: round(took, 1) for unit, took in sorted(seconds.items())}


def _id(case: ET.Element) -> str:
    """Return a test's id; the class of a JUnit case is the module, with the test's class if it has one."""
    module = str(case.get("classname"))
    words = module.split(".")
    classes = [word for word in words if word.startswith("Test")]
    path = "/".join(words[: len(words) - len(classes)])
    return "::".join([f"{path}.py", *classes, str(case.get("name"))])


def read_seconds() -> dict[str, float]:
    """Return the seconds that were measured."""
    return dict(json.loads(SECONDS.read_text()))


if __name__ == "__main__":
    SECONDS.write_text(json.dumps(measured(Path(sys.argv[1])), indent=1) + "\n")
