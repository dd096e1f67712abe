"""Run every code block of the guides and concept pages, as a reader would."""

import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import environment
from conftest import kill_marked
from doc_blocks import DOCS, LANGUAGES, Block, Reader, blocks, is_walked, pages

from tailrace.kafka.broker import Broker, temporary_broker
from tailrace.toolchain import cache_dir

PAGES = pages()
WALKED = [page for page in PAGES if is_walked(page)]
BLOCKS = [block for page in PAGES for block in blocks(page)]
BROKER = "TAILRACE_BOOTSTRAP_SERVERS"


def name_of(page: Path) -> str:
    return page.stem


def in_one_folder() -> dict[str, Block]:
    """Return the Python files of the pages without console blocks, by name."""
    files: dict[str, Block] = {}
    for block in BLOCKS:
        if block.page not in WALKED:
            assert block.file not in files, f"{block.where}: there is another {block.file}"
            files[str(block.file)] = block
    return files


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_a_block_is_of_a_kind_that_is_run(block: Block) -> None:
    assert block.language in LANGUAGES
    assert block.language != "python" or block.file is not None, "a Python block begins with its file: # large.py"


def test_every_python_file_is_used() -> None:
    files = in_one_folder()
    code = "\n".join(block.content for block in files.values())
    used = set(re.findall(r"^\s*(?:from|import) (\w+)", code, re.MULTILINE))
    assert not [name for name in files if not name.startswith("test_") and name.removesuffix(".py") not in used]


def test_the_index_has_every_page() -> None:
    listed = re.findall(r"\]\(((?:guide|concepts)/[^)#]+)\)", (DOCS / "index.md").read_text())
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES if page.parent != DOCS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.fixture
def reader_env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the test its own user folders with the shared jars, and stop all remaining processes at the end."""
    cache = tmp_path / "home" / "cache"
    cache.mkdir(parents=True)
    for kept in ("jars", "java", "classes"):
        (cache / kept).symlink_to(cache_dir() / kept)
    mark = f"tailrace-test-{secrets.token_hex(8)}"
    yield environment({"TAILRACE_HOME": str(cache.parent), "TAILRACE_TEST_MARK": mark})
    kill_marked(mark)


def brings_its_broker(page: Path) -> bool:
    """Return whether the page's own commands start a broker."""
    typed = "\n".join(block.text for block in blocks(page) if block.language == "console")
    return any(f"$ tailrace {command}" in typed for command in ("broker start", "bench", "chaos"))


@pytest.fixture(scope="module")
def running_broker() -> Iterator[Broker]:
    """A broker for the pages that expect one; each creates topics of its own."""
    with temporary_broker(lambda _: None) as broker:
        yield broker


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", WALKED, ids=name_of)
def test_a_page_can_be_followed(
    page: Path, reader_env: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not brings_its_broker(page):
        reader_env[BROKER] = request.getfixturevalue("running_broker").bootstrap_servers
    walk(page, tmp_path / "reader", reader_env)


def walk(page: Path, folder: Path, env: dict[str, str]) -> None:
    folder.mkdir()
    reader = Reader(folder, env)
    try:
        for block in blocks(page):
            reader.follow(block)
    finally:
        reader.leave()
    assert reader.is_done(), f"{page.name} leaves a program running"


@pytest.mark.timeout(600)
def test_the_python_of_the_other_pages(tmp_path: Path) -> None:
    files = in_one_folder()
    for name, block in files.items():
        (tmp_path / name).write_text(block.content)
    # Real time has the most ways to fail. The tests of the examples compare all modes.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tailrace-mode", "realtime"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=590, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
