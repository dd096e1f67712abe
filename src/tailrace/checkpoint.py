"""Read a checkpoint folder, lock it, and record its owner.

Spark's own files are read, never written; only incomplete files of an interrupted run are removed, and state without
a checkpoint is moved to ``state.abandoned``. Tailrace's files are ``tailrace.json`` with the owner, ``.tailrace.lock``,
which a running process locks, and ``tailrace-python.json`` with the costs of the Python functions. The engine writes
``tailrace-topics`` with the ids of the topics and ``tailrace-progress`` with what is done within a batch. It also adds
a batch to Spark's logs if a run has noted that it was done.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tailrace.conditions.checkpoints import CHECKPOINT_FOREIGN
from tailrace.errors import (
    CheckpointForeign,
    CheckpointInUse,
    CheckpointUnwritable,
)

DEFAULT_PARENT = Path(".tailrace/checkpoints")


@dataclass(frozen=True)
class Owner:
    """The query that a checkpoint belongs to."""

    name: str
    topics: tuple[str, ...]
    sink: str


_COSTS = "tailrace-python.json"


class Checkpoint:
    """A checkpoint folder on this machine, or the address of one elsewhere.

    A folder elsewhere (``hdfs:``, ``s3a:``, ...) can be neither locked nor read from here: only Spark's own checks
    apply to it.
    """

    def __init__(self, location: str | Path) -> None:
        self.path = _local_path(str(location))
        self.location = str(self.path) if self.path is not None else str(location)
        self._lock: int | None = None
        self._held = threading.RLock()
        """Keeps the lock until another thread has finished writing."""

    def acquire(self, owner: Owner) -> None:
        """Create the folder, lock it for this process and record its owner.

        Raises:
            CheckpointUnwritable: It cannot be created or written.
            CheckpointInUse: Another process runs on it.
            CheckpointForeign: It belongs to another query.
        """
        if self.path is None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".tailrace.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as refused:
            raise _unwritable(self.path, refused) from refused
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise CheckpointInUse(
                f"the checkpoint {self.path} is in use" + (f" by process {holder}" if holder else ""),
                why="two queries on one checkpoint overwrite each other's progress",
                fix="stop the other run, or give this one its own: --checkpoint DIR",
            ) from taken
        self._lock = lock
        try:
            self._require_owner(owner)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            self._write_owner(owner)
            self._clear_unfinished()
        except OSError as refused:
            self.release()
            raise _unwritable(self.path, refused) from refused
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let other processes use the folder."""
        with self._held:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def is_fresh(self) -> bool:
        """Return whether no query has ever run on it, as far as this machine can see."""
        return self.path is None or not (self.path / "metadata").exists()

    def last_commit(self) -> int | None:
        """Return the number of the last completed batch; None if there is none."""
        numbers = self._batch_numbers("commits")
        return max(numbers) if numbers else None

    def pinned_shuffle_partitions(self) -> int | None:
        """Return the number of shuffle partitions of the saved state, which cannot change; None if there is none."""
        batches = self._batch_numbers("offsets")
        if not batches:
            return None
        conf = self._offset_metadata(max(batches)).get("conf", {})
        value = conf.get("spark.sql.shuffle.partitions")
        return int(value) if value is not None else None

    def commit_format(self) -> int | None:
        """Return the version of the newest commit; None if there is none. Real time needs version 2."""
        last = self.last_commit()
        if last is None or self.path is None:
            return None
        first_line = (self.path / "commits" / str(last)).read_text().partition("\n")[0].strip()
        return int(first_line[1:]) if first_line[:1] == "v" and first_line[1:].isdigit() else None

    def saved_offsets(self) -> tuple[str, ...]:
        """Return where each source continues, as Spark wrote it with the last completed batch."""
        last = self.last_commit()
        if last is None or self.path is None:
            return ()
        try:
            return tuple((self.path / "offsets" / str(last)).read_text().splitlines()[2:])
        except FileNotFoundError:
            return ()  # Spark removes old ones

    def save_costs(self, costs: Mapping[str, Mapping[str, float]]) -> None:
        """Save the costs of a run's Python functions for the next check; ignore a failed write.

        Without the lock nothing is written: another process may use the folder by now.
        """
        with self._held:
            if self.path is not None and self._lock is not None and costs:
                with contextlib.suppress(OSError):
                    (self.path / _COSTS).write_text(json.dumps(costs))

    def saved_costs(self) -> dict[str, dict[str, float]]:
        """Return the costs of the last run's Python functions by name; empty if unknown."""
        if self.path is None:
            return {}
        try:
            costs = json.loads((self.path / _COSTS).read_text())
        except (OSError, ValueError):
            return {}
        return costs if isinstance(costs, dict) else {}

    def other_owner(self, owner: Owner) -> str:
        """Describe the owner, if it is another query; recorded by Tailrace, or else by Spark. Empty otherwise."""
        if self.is_fresh():
            return ""  # no query has ever run on it
        recorded = self._read_owner()
        topics = set(recorded.topics) if recorded else self._committed_topics()
        other_name = recorded is not None and recorded.name != owner.name
        other_topics = bool(topics) and bool(owner.topics) and topics.isdisjoint(owner.topics)
        if not (other_name or other_topics):
            return ""
        what = f"query {recorded.name!r}" if recorded else "another query"
        return f"{what}, which reads {', '.join(sorted(topics))}" if topics else what

    def _require_owner(self, owner: Owner) -> None:
        other = self.other_owner(owner)
        if not other:
            return
        message = CHECKPOINT_FOREIGN.message(location=self.path, owner=other, query=owner.name)
        raise CheckpointForeign(message.what, why=message.why, fix=message.fix)

    def _read_owner(self) -> Owner | None:
        if self.path is None:
            return None
        try:
            owner = json.loads((self.path / "tailrace.json").read_text())
            return Owner(owner["name"], tuple(owner["topics"]), owner["sink"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write_owner(self, owner: Owner) -> None:
        if self.path is None:
            return
        file = self.path / "tailrace.json"
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(owner)))
        temporary.replace(file)

    def _clear_unfinished(self) -> None:
        """Remove what an interrupted run left behind.

        If no batch has completed, Spark treats leftover files as an earlier query and refuses to start: unfinished
        files in the logs, and in micro-batch the state of a real-time batch that never reached its first checkpoint.
        """
        if self.path is None:
            return
        for log in ("offsets", "commits", "tailrace-progress"):
            for incomplete in (*(self.path / log).glob(".*.tmp"), *(self.path / log).glob(".*.tmp.crc")):
                incomplete.unlink(missing_ok=True)
        state = self.path / "state"
        if state.exists() and not self._batch_numbers("offsets") and not self._batch_numbers("commits"):
            abandoned = self.path / "state.abandoned"
            shutil.rmtree(abandoned, ignore_errors=True)
            state.rename(abandoned)

    def _committed_topics(self) -> set[str]:
        """Return the topics in the newest offsets that Spark wrote; empty if the sources are not Kafka."""
        batches = self._batch_numbers("offsets")
        if not batches or self.path is None:
            return set()
        topics: set[str] = set()
        for line in (self.path / "offsets" / str(max(batches))).read_text().splitlines()[2:]:
            with contextlib.suppress(ValueError):
                offsets = json.loads(line)
                if isinstance(offsets, dict) and all(isinstance(each, dict) for each in offsets.values()):
                    topics |= offsets.keys()
        return topics

    def _offset_metadata(self, batch: int) -> dict[str, Any]:
        if self.path is None:
            return {}
        lines = (self.path / "offsets" / str(batch)).read_text().splitlines()
        try:
            metadata = json.loads(lines[1])
        except (IndexError, ValueError):
            return {}
        return metadata if isinstance(metadata, dict) else {}

    def _batch_numbers(self, log: str) -> Sequence[int]:
        if self.path is None:
            return []
        return [int(file.name) for file in (self.path / log).glob("*") if file.name.isdigit()]


def default_location(name: str) -> Path:
    """Return the default checkpoint folder of a query."""
    return DEFAULT_PARENT / name


def _local_path(location: str) -> Path | None:
    """Return the folder on this machine; None if the location is elsewhere."""
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path) if parsed.scheme else location).absolute()
    return None


def _unwritable(path: Path, refused: OSError) -> CheckpointUnwritable:
    fix = "choose a folder that this user may write to: --checkpoint DIR"
    if refused.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = f"free some space on the file system at {_mount_point(path)}, or choose another: --checkpoint DIR"
    return CheckpointUnwritable(
        f"the checkpoint folder {path} cannot be written", why=refused.strerror or str(refused), fix=fix
    )


def _mount_point(path: Path) -> Path:
    """Return the folder at which the file system of a path is mounted."""
    return next(folder for folder in (path, *path.parents) if folder.is_mount() or folder == folder.parent)
