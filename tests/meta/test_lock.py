"""What is installed is what was tested: every package and every jar by version and checksum."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tailrace.toolchain import read_lock

from .source import ROOT

PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?:\s*;[^\\]*)?")


def locked_requirements(name: str = "requirements.lock") -> dict[str, tuple[str, int]]:
    """Each requirement of a lock, with its version and how many checksums it has."""
    text = (ROOT / name).read_text(encoding="utf-8")
    entries = re.sub(r"\\\n\s*", " ", text).splitlines()
    locked: dict[str, tuple[str, int]] = {}
    for entry in entries:
        if not entry.strip() or entry.startswith("#"):
            continue
        requirement, *hashes = entry.split(" --hash=")
        pinned = PINNED.fullmatch(requirement.strip())
        assert pinned, f"not pinned by ==: {requirement}"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", each) for each in hashes), f"not a sha256: {requirement}"
        locked[canonicalize_name(pinned["name"])] = (pinned["version"], len(hashes))
    return locked


def declared_requirements() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [Requirement(each) for each in [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]]


def test_every_requirement_has_a_version_and_a_checksum() -> None:
    locked = locked_requirements()
    assert len(locked) > 10
    assert not [name for name, (_, hashes) in locked.items() if hashes == 0]


def test_every_dependency_is_locked_at_a_version_that_it_allows() -> None:
    locked = locked_requirements()
    for requirement in declared_requirements():
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


def test_run_and_test_locks_agree() -> None:
    run, everything = locked_requirements("requirements-run.lock"), locked_requirements()
    assert {name: everything[name] for name in run} == run
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {canonicalize_name(Requirement(each).name) for each in project["dependencies"]} <= set(run)


def test_every_jar_has_a_checksum_and_a_set() -> None:
    jars = read_lock()
    assert {jar.set_name for jar in jars} == {"connector", "broker"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in jars)
    assert len({jar.sha256 for jar in jars}) == len(jars), "two jars cannot have one content"


def test_jar_versions_are_exact() -> None:
    assert not [jar.coordinate for jar in read_lock() if re.search(r"SNAPSHOT|latest|[+\[\]()]", jar.version)]
