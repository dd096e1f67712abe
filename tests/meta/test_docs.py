"""The docs say what the code does."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from docs.generate import pages
from tailrace.measure.lanes import all_lanes
from tailrace.measure.options import PROFILES, STUDIES
from tailrace.measure.schedule import Shape
from tailrace.measure.works import Work

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_reference_pages_are_up_to_date(page: Path) -> None:
    assert page.read_text() == pages()[page], "run: make docs"


def test_every_path_in_the_architecture_exists() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## The tree")[2].partition("## Direction")[0]
    named = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(named) > 10
    missing = [name for name in named if not ((ROOT / name).exists() or (ROOT / "src" / "tailrace" / name).exists())]
    assert not missing


def test_the_architecture_names_every_part_of_the_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    parts = [
        path
        for path in (ROOT / "src" / "tailrace").iterdir()
        if not path.name.startswith(("_", "py.typed", "tailrace-engine"))
    ]
    assert not [path.name for path in parts if f"{path.name}`" not in text and f"{path.name}/`" not in text]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_their_anchors_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", FENCED.sub("", page.read_text()))
    targets = [((page.parent / link).resolve() if link else page, anchor) for link, anchor in links]
    assert not [target for target, _ in targets if not target.exists()]
    assert not [(target.name, anchor) for target, anchor in targets if anchor and anchor not in anchors(target)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_source_files_in_a_page_exist(page: Path) -> None:
    named = set(re.findall(r"`([\w-]+(?:/[\w.-]+)*/[\w.-]+\.(?:py|scala))`", page.read_text()))
    homes = (ROOT, ROOT / "src", ROOT / "src" / "tailrace")
    assert not [name for name in named if not any((home / name).exists() for home in homes)]


def test_make_targets_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        used = set(re.findall(r"\bmake ([a-z-]+)", re.sub(r"[^\n]*make sure[^\n]*", "", (ROOT / page).read_text())))
        assert used, page
        assert used <= targets, page


CHOICES: dict[str, Iterable[str]] = {
    "lanes": all_lanes(),
    "works": Work,
    "shapes": Shape,
    "profiles": PROFILES,
    "studies": STUDIES,
}


@pytest.mark.parametrize("known", CHOICES.values(), ids=CHOICES)
def test_the_benchmark_guide_names_every_choice(known: Iterable[str]) -> None:
    rows = [line for line in (ROOT / "docs/guide/benchmark.md").read_text().splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert set(known) <= named
