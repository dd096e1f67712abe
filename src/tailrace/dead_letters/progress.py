"""Which dead letters have been replayed: a file beside the checkpoints, to which each replay adds lines.

A line has the id of the dead-letter topic, a partition and a range of offsets. If the topic is created again, its id
differs, and the lines no longer apply.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tailrace.dead_letters.letter import Letter
from tailrace.errors import CheckpointInUse, CheckpointUnwritable
from tailrace.toolchain.filelock import LockTimeoutError, exclusive

FOLDER = Path(".tailrace/dead-letters")


class Progress:
    """The replayed letters of a pipeline.

    Args:
        pipeline: The pipeline's name.
        topic_id: The id of its dead-letter topic.
    """

    def __init__(self, pipeline: str, topic_id: str) -> None:
        self.path = (FOLDER / f"{pipeline}.jsonl").absolute()
        self._topic_id = topic_id
        self._replayed = self._load()

    def __contains__(self, letter: Letter) -> bool:
        return _place(letter) in self._replayed

    def note(self, letters: Iterable[Letter]) -> None:
        """Save that these letters have been replayed.

        Raises:
            CheckpointUnwritable: The file cannot be written.
        """
        places = {_place(letter) for letter in letters}
        lines = [
            json.dumps({"topic_id": self._topic_id, "partition": partition, "first": first, "last": last}) + "\n"
            for partition, first, last in _ranges(places)
        ]
        try:
            with self.path.open("a+b") as file:
                file.write(_line_end(file) + "".join(lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as refused:
            raise _unwritable(self.path, refused) from refused
        self._replayed |= places

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exclude other replays of the pipeline in this folder.

        Raises:
            CheckpointInUse: One is running.
            CheckpointUnwritable: The file cannot be written.
        """
        with ExitStack() as lock:
            try:
                lock.enter_context(exclusive(self.path.with_suffix(".lock"), on_wait=lambda _: None, timeout_s=0))
                self._replayed = self._load()
            except LockTimeoutError as busy:
                raise CheckpointInUse(
                    f"process {busy.holder} is replaying dead letters of the same pipeline",
                    why=f"both note their progress in {self.path}, and would replay the same letters",
                    fix="wait until it ends",
                ) from busy
            except OSError as refused:
                raise _unwritable(self.path, refused) from refused
            self.note(())  # fail before the first letter, not after it
            yield

    def _load(self) -> set[tuple[int, int]]:
        return {
            (line["partition"], offset)
            for line in self._lines()
            if line["topic_id"] == self._topic_id
            for offset in range(line["first"], line["last"] + 1)
        }

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue


def _place(letter: Letter) -> tuple[int, int]:
    return letter.record.partition, letter.record.offset


def _ranges(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield partition, first and last offset of consecutive letters."""
    numbered = enumerate(sorted(places))
    for _, run in itertools.groupby(numbered, lambda each: (each[1][0], each[1][1] - each[0])):
        same = [place for _, place in run]
        yield same[0][0], same[0][1], same[-1][1]


def _line_end(file: IO[bytes]) -> bytes:
    """Return what ends the last line of a file; a crash may have left an incomplete one."""
    if not file.seek(0, os.SEEK_END):
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _unwritable(path: Path, refused: OSError) -> CheckpointUnwritable:
    return CheckpointUnwritable(
        f"the progress of the replay cannot be saved in {path}",
        why=refused.strerror or str(refused),
        fix="run the command in a folder that this user can write to",
    )
