import re

import tailrace

from .source import ROOT

HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


def test_the_version_is_the_newest_in_the_changelog() -> None:
    versions = [version for version, _ in HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))]
    assert versions, "CHANGELOG.md has no heading such as `## [0.1.0] - 2026-11-15`"
    assert tailrace.__version__ == versions[0]


def test_the_changelog_is_ordered_from_new_to_old() -> None:
    entries = HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    numbers = [tuple(map(int, version.split("."))) for version, _ in entries]
    assert numbers == sorted(set(numbers), reverse=True)
    dates = [date for _, date in entries]
    assert dates == sorted(dates, reverse=True)
