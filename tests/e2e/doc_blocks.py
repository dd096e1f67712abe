"""Read the code blocks of the guides and concept pages, and run them as a reader would.

Pages have only two kinds of fenced blocks, so every block is run:

``python``   starts with its file name, ``# large.py``. It is written to a folder. If the page's own commands created a
             file of that name, the block must be a part of that file.
``console``  lines that start with ``$`` are commands. The lines below a command must appear in its output in that
             order; other lines may be between them, and ``...`` stands for any text. A program that runs until it is
             stopped keeps running while the page goes on; ``^C`` stops it. A command must succeed unless the page
             expects an error. A benchmark may also end void if the machine is too busy (:func:`ended_well`).
"""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conftest import wait_until

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = ("python", "console")
PROGRAMS = {
    "tailrace": [sys.executable, "-m", "tailrace"],
    "pytest": [sys.executable, "-m", "pytest"],
    "python": [sys.executable],
}
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 120.0
_LONG_TIMEOUT_S = 300.0
_VOID = "void:"
_BUSY = ("the load missed its plan", "the lane fell behind")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(DOCS)} line {self.line}"

    @property
    def file(self) -> str | None:
        """The file name of a Python block."""
        match = re.match(r"# (\w+\.py)\n", self.text)
        return match.group(1) if match else None

    @property
    def content(self) -> str:
        """The content of that file."""
        return self.text.partition("\n")[2].lstrip("\n")


def pages() -> list[Path]:
    return [DOCS / "index.md", *sorted(DOCS.glob("guide/**/*.md")), *sorted(DOCS.glob("concepts/**/*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    parsed = [
        Block(page, text[: each.start()].count("\n") + 1, each.group(1), each.group(2))
        for each in _BLOCK.finditer(text)
    ]
    fences = len(_FENCE.findall(re.sub(r"^[ \t]+", "", text, flags=re.MULTILINE)))
    assert fences == 2 * len(parsed), f"{page.name}: a fence is indented, of another kind or not closed"
    return parsed


def is_walked(page: Path) -> bool:
    """Return whether a page has console blocks. Of the other pages, only the Python files are run."""
    return any(block.language == "console" for block in blocks(page))


class Reader:
    """Runs the blocks of a page one by one in its own folder."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = dict(env)
        self._logs = folder.parent / f"{folder.name}-logs"
        self._logs.mkdir()
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self._write(block)
            return
        for typed, expected in _steps(block):
            if typed == "^C":
                self._interrupt(expected, block)
            else:
                self._type(typed, expected, block)

    def leave(self) -> None:
        """Kill the programs that a failed page left running."""
        for process, _ in self._running:
            process.kill()
            process.wait()

    def is_done(self) -> bool:
        """Return whether no program is left running."""
        return not self._running

    def _write(self, block: Block) -> None:
        path = self._folder / str(block.file)
        if path.exists():
            # Compare without whitespace: ruff formats the Python in these pages differently.
            shown, written = ("".join(text.split()) for text in (block.content, path.read_text()))
            assert shown in written, f"{block.where}: {block.file} is another one"
        else:
            path.write_text(block.content)

    def _type(self, typed: str, expected: Sequence[str], block: Block) -> None:
        words = shlex.split(typed)
        if words[0] == "cd":
            self._folder /= words[1]
            assert self._folder.is_dir(), block.where
            return
        log = self._logs / f"{len(list(self._logs.iterdir())):03}"
        process = self._start(words, log)
        if _runs_until_stopped(words):
            self._running.append((process, log))
            wait_until(
                lambda: process.poll() is not None or not _missing(expected, log.read_text()),
                _TIMEOUT_S,
                f"{block.where}: {typed}",
            )
        else:
            try:
                process.wait(_LONG_TIMEOUT_S if _takes_long(words) else _TIMEOUT_S)
            finally:
                process.kill()
            good = ended_well(words, process.returncode, expected, log.read_text())
            assert good, f"{block.where}: {typed}\n{log.read_text()}"
        _require(expected, log.read_text(), f"{block.where}: {typed}")

    def _interrupt(self, expected: Sequence[str], block: Block) -> None:
        process, log = self._running.pop()
        try:
            process.send_signal(signal.SIGINT)
            assert process.wait(_TIMEOUT_S) == 0, f"{block.where}: {log.read_text()}"
        finally:
            process.kill()
        _require(expected, log.read_text(), f"{block.where}: ^C")

    def _start(self, words: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        with log.open("wb") as output:
            return subprocess.Popen(
                [*PROGRAMS[words[0]], *words[1:]],
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Background jobs of a shell ignore SIGINT, and child processes inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )


def _steps(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a block with its expected output."""
    steps: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ ") or line == "^C":
            steps.append((line.removeprefix("$ "), []))
        else:
            assert steps, f"{block.where}: begins with output"
            steps[-1][1].append(line)
    assert steps, f"{block.where}: is empty"
    yield from steps


def _runs_until_stopped(words: Sequence[str]) -> bool:
    return words[0] == "python" or (words[:2] == ["tailrace", "run"] and "--once" not in words)


def _is_bench(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["tailrace", "bench"]


def _takes_long(words: Sequence[str]) -> bool:
    return _is_bench(words) or list(words[:2]) == ["tailrace", "chaos"]


def ended_well(words: Sequence[str], code: int, expected: Sequence[str], printed: str) -> bool:
    """Return whether a command ended as its page says.

    A machine that runs tests may be too busy to send a load on time or to keep up with it. So a benchmark may end
    with 1 if these are its only reasons.
    """
    if any(line.startswith(("error:", "error ")) for line in expected):
        return code != 0
    voids = [line for line in printed.splitlines() if line.startswith(_VOID)]
    if _is_bench(words) and code == 1 and voids:
        return all(any(busy in line for busy in _BUSY) for line in voids)
    return code == 0


def _missing(expected: Sequence[str], printed: str) -> list[str]:
    """Return the first expected line that is missing after the previous one, if any."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for wanted in expected:
        pattern = ".*".join(re.escape(part) for part in " ".join(wanted.split()).split("..."))
        if not any(re.fullmatch(pattern, line) for line in lines):
            return [wanted]
    return []


def _require(expected: Sequence[str], printed: str, what: str) -> None:
    assert not _missing(expected, printed), f"{what}\ndid not print {_missing(expected, printed)[0]!r}:\n{printed}"
