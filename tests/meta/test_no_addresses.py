"""No file of the repository names a package registry or one person's machine.

A company builds from its own mirror: an address in the repository would go around it. The patterns are put together
from pieces, so that this file does not hold what it forbids.
"""

import re
import subprocess
from pathlib import Path

import pytest

from .source import ROOT

REGISTRIES = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("repo1", "maven", "org"),
    ("repo", "maven", "apache", "org"),
    ("central", "sonatype"),
    ("oss", "sonatype", "org"),
    ("repository", "apache", "org"),
    ("archive", "apache", "org"),
    ("packages", "confluent", "io"),
    ("registry", "npmjs", "org"),
    ("conda", "anaconda", "org"),
    ("docker", "io"),
    ("ghcr", "io"),
    ("quay", "io"),
    ("api", "adoptium", "net"),
]
HOST = re.compile("|".join(re.escape(".".join(pieces)) for pieces in REGISTRIES), re.IGNORECASE)
# What a mirror's address looks like, whatever its host.
MIRROR = re.compile(r"\w+://[^\s\"'`<>]*/(?:" + "|".join(["simple", "maven2", "artifactory", "nexus"]) + r")\b")
PIP_OPTION = re.compile(r"^\s*--(?:extra-)?index-" + r"url[ =]|^\s*--find-" + r"links[ =]", re.MULTILINE)
ONE_MACHINE = re.compile(r"(?<![\w.$}*-])/(?:" + "|".join(["work", "root", "Users"]) + r")/[\w.]")


def tracked_files() -> list[Path]:
    """What git has, and what it would take with the next `git add`."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    assert ROOT / "pyproject.toml" in files
    return [path for path in files if path.is_file()]


@pytest.mark.parametrize("pattern", [HOST, MIRROR, PIP_OPTION, ONE_MACHINE], ids=["host", "mirror", "option", "path"])
def test_no_file_names_a_registry_or_one_machine(pattern: re.Pattern[str]) -> None:
    named = {
        f"{path.relative_to(ROOT)}: {match.group(0)}"
        for path in tracked_files()
        for match in pattern.finditer(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert not named


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (HOST, "see https://" + "pypi" + ".org/project/x"),
        (MIRROR, "https://mirror.example" + "/api/" + "simple" + "/"),
        (PIP_OPTION, "  --extra-" + "index-url https://x"),
        (ONE_MACHINE, "cd '/" + "work/main'"),
    ],
    ids=["host", "mirror", "option", "path"],
)
def test_each_pattern_matches_its_example(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
