import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.cli.costs import cost_in_words
from tailrace.errors import CheckpointForeign, CheckpointInUse, CheckpointUnwritable
from tailrace.prepare.facts import read_checkpoint

OWNER = Owner("fraud", ("payments",), "decisions")

HOLD = """
import sys
from tailrace.checkpoint import Checkpoint, Owner
Checkpoint(sys.argv[1]).acquire(Owner("fraud", ("payments",), "decisions"))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def acquire_and_release(folder: Path, owner: Owner = OWNER) -> None:
    checkpoint = Checkpoint(folder)
    checkpoint.acquire(owner)
    checkpoint.release()


def write_metadata(folder: Path) -> None:
    """What Spark writes first of all, when a query begins to run."""
    (folder / "metadata").write_text('{"id":"3b9f4a4e-7f0f-4a53-8f5a-0d1f0b8a2f11"}')


def write_offsets(folder: Path, batch: int, *sources: str, conf: dict[str, str] | None = None) -> None:
    """As Spark writes them: a version, its metadata, then a line for each source."""
    folder.mkdir(parents=True, exist_ok=True)
    write_metadata(folder)
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf or {}}
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", json.dumps(metadata), *sources]))
    (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")


def write_commit(folder: Path, batch: int, version: str) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(batch)).write_text(f'{version}\n{{"nextBatchWatermarkMs":0}}')
    (folder / "commits" / f".{batch}.crc").write_bytes(b"crc")


def test_a_checkpoint_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder, pytest.raises(CheckpointInUse) as refused:
        Checkpoint(tmp_path).acquire(OWNER)
    assert f"by process {holder.pid}" in refused.value.what
    assert "--checkpoint" in refused.value.fix


def test_the_lock_is_released_when_its_process_dies(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder:
        holder.kill()
        holder.wait(timeout=20)
        acquire_and_release(tmp_path)


def test_one_query_of_a_process_holds_the_lock_at_a_time(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path)
    first.acquire(OWNER)
    with pytest.raises(CheckpointInUse):
        Checkpoint(tmp_path).acquire(OWNER)
    first.release()
    first.release()  # a second time does no harm
    acquire_and_release(tmp_path)


def test_locking_creates_the_folder_and_its_owner_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "below"
    acquire_and_release(folder)
    assert json.loads((folder / "tailrace.json").read_text()) == {
        "name": "fraud",
        "topics": ["payments"],
        "sink": "decisions",
    }
    assert (folder / ".tailrace.lock").read_text() == str(os.getpid())


def test_the_same_query_continues_with_an_additional_topic(tmp_path: Path) -> None:
    acquire_and_release(tmp_path)
    write_metadata(tmp_path)
    acquire_and_release(tmp_path, Owner("fraud", ("payments", "refunds"), "decisions"))


@pytest.mark.parametrize(
    "other", [Owner("clicks", ("payments",), "decisions"), Owner("fraud", ("clicks",), "decisions")]
)
def test_another_querys_checkpoint_is_refused_and_unchanged(tmp_path: Path, other: Owner) -> None:
    acquire_and_release(tmp_path, other)
    write_metadata(tmp_path)
    before = (tmp_path / "tailrace.json").read_text()
    with pytest.raises(CheckpointForeign) as refused:
        Checkpoint(tmp_path).acquire(OWNER)
    assert repr(other.name) in refused.value.what
    assert ", ".join(other.topics) in refused.value.what
    assert (tmp_path / "tailrace.json").read_text() == before
    acquire_and_release(tmp_path, other)  # the refusal kept no lock


def test_a_folder_without_progress_may_change_its_owner(tmp_path: Path) -> None:
    acquire_and_release(tmp_path, Owner("refused-at-its-start", ("clicks",), "decisions"))
    acquire_and_release(tmp_path)
    assert json.loads((tmp_path / "tailrace.json").read_text())["name"] == "fraud"


def test_without_an_owner_file_sparks_offsets_name_the_topics(tmp_path: Path) -> None:
    write_offsets(tmp_path, 0, '{"payments":{"0":5}}')
    write_offsets(tmp_path, 10, '{"clicks":{"0":5}}', '{"views":{"0":1,"1":2}}')
    write_offsets(tmp_path, 9, '{"payments":{"0":9}}')
    with pytest.raises(CheckpointForeign, match="clicks, views"):
        Checkpoint(tmp_path).acquire(OWNER)
    acquire_and_release(tmp_path, Owner("other", ("views",), "out"))


@pytest.mark.parametrize("line", ["-", "17", '{"seq":5}', "not json"])
def test_offsets_of_other_sources_name_no_topics(tmp_path: Path, line: str) -> None:
    write_offsets(tmp_path, 0, line)
    acquire_and_release(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "x"}', '{"name": "x", "topics": 3, "sink": "y"}'])
def test_an_unreadable_owner_file_falls_back_to_sparks_offsets(tmp_path: Path, content: str) -> None:
    (tmp_path / "tailrace.json").write_text(content)
    write_offsets(tmp_path, 0, '{"clicks":{"0":5}}')
    with pytest.raises(CheckpointForeign, match="another query, which reads clicks"):
        Checkpoint(tmp_path).acquire(OWNER)


def test_a_folder_that_cannot_be_created_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a regular file")
    with pytest.raises(CheckpointUnwritable) as refused:
        Checkpoint(tmp_path / "file" / "below").acquire(OWNER)
    assert str(tmp_path / "file" / "below") in refused.value.what
    assert refused.value.why == "Not a directory"


def test_an_unwritable_owner_file_is_refused_and_the_lock_released(tmp_path: Path) -> None:
    (tmp_path / "tailrace.json").mkdir()
    with pytest.raises(CheckpointUnwritable):
        Checkpoint(tmp_path).acquire(OWNER)
    (tmp_path / "tailrace.json").rmdir()
    acquire_and_release(tmp_path)


def test_the_last_commit_has_the_greatest_number(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).last_commit() is None
    for batch in (9, 10, 2):
        write_commit(tmp_path, batch, "v2")
    assert Checkpoint(tmp_path).last_commit() == 10


def test_the_last_commit_sets_the_format(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).commit_format() is None
    write_commit(tmp_path, 0, "v1")
    assert Checkpoint(tmp_path).commit_format() == 1
    write_commit(tmp_path, 1, "v2")
    assert Checkpoint(tmp_path).commit_format() == 2


def test_the_newest_offsets_pin_the_shuffle_partitions(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.pinned_shuffle_partitions() is None
    write_offsets(tmp_path, 9, '{"payments":{"0":5}}', conf={"spark.sql.shuffle.partitions": "3"})
    assert checkpoint.pinned_shuffle_partitions() == 3
    write_offsets(tmp_path, 10, '{"payments":{"0":5}}')
    assert checkpoint.pinned_shuffle_partitions() is None, "that batch says nothing about them"


@pytest.mark.parametrize("content", ["", "v1", "v1\nnot json", "v1\n[]"])
def test_truncated_offsets_pin_nothing(tmp_path: Path, content: str) -> None:
    write_offsets(tmp_path, 0)
    (tmp_path / "offsets" / "0").write_text(content)
    assert Checkpoint(tmp_path).pinned_shuffle_partitions() is None


def test_a_remote_location_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint("s3a://bucket/checkpoints/fraud")
    checkpoint.acquire(OWNER)
    assert checkpoint.commit_format() is None
    assert checkpoint.location == "s3a://bucket/checkpoints/fraud"
    assert (checkpoint.path, checkpoint.last_commit(), checkpoint.pinned_shuffle_partitions()) == (None, None, None)
    checkpoint.release()
    assert list(tmp_path.iterdir()) == [], "nothing was created on this machine"


def test_a_file_address_is_a_local_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert Checkpoint(folder.as_uri()).path == folder
    assert Checkpoint(f"file:{tmp_path}/x").location == f"{tmp_path}/x"


def test_a_relative_location_is_resolved_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Checkpoint(default_location("fraud")).path == tmp_path / ".tailrace" / "checkpoints" / "fraud"
    assert Checkpoint("50%25").path == tmp_path / "50%25", "only an address is percent-encoded"


@pytest.mark.parametrize("log", ["offsets", "commits", "tailrace-progress"])
def test_unfinished_writes_of_spark_and_of_notes_are_removed(tmp_path: Path, log: str) -> None:
    write_offsets(tmp_path, 0)
    (tmp_path / log).mkdir(exist_ok=True)
    for name in (".0.4f6f.TID7.tmp", "..0.4f6f.TID7.tmp.crc"):
        (tmp_path / log / name).write_text("half")
    acquire_and_release(tmp_path)
    assert not [file for file in (tmp_path / log).iterdir() if ".tmp" in file.name]
    assert sorted(file.name for file in (tmp_path / "offsets").iterdir()) == [".0.crc", "0"]


def test_state_of_an_unfinished_first_batch_is_moved_aside(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        (tmp_path / "state" / "0").mkdir(parents=True)
        (tmp_path / "state" / "0" / "1.changelog").write_text(attempt)
        acquire_and_release(tmp_path)
        assert not (tmp_path / "state").exists()
        assert (tmp_path / "state.abandoned" / "0" / "1.changelog").read_text() == attempt


@pytest.mark.parametrize("batch_in", ["offsets", "commits"])
def test_state_of_a_logged_batch_is_kept(tmp_path: Path, batch_in: str) -> None:
    if batch_in == "offsets":
        write_offsets(tmp_path, 0)
    else:
        write_commit(tmp_path, 0, "v2")
    (tmp_path / "state").mkdir()
    acquire_and_release(tmp_path)
    assert (tmp_path / "state").exists()


def test_function_costs_are_saved_for_the_next_check(tmp_path: Path) -> None:
    here = Checkpoint(tmp_path)
    here.acquire(OWNER)
    assert here.saved_costs() == {}
    here.save_costs({})
    assert here.saved_costs() == {}
    here.save_costs({"risk": {"rows": 3, "python_ms": 0.5}})
    assert Checkpoint(tmp_path).saved_costs() == {"risk": {"rows": 3, "python_ms": 0.5}}
    (tmp_path / "tailrace-python.json").write_text("{half")
    assert here.saved_costs() == {}


class TestOlderVersions:
    """A checkpoint as earlier versions left it, byte for byte."""

    @pytest.fixture(autouse=True)
    def _checkpoint(self, tmp_path: Path) -> None:
        write_metadata(tmp_path)
        write_offsets(tmp_path, 0)
        write_commit(tmp_path, 0, "v2")
        (tmp_path / ".tailrace.lock").write_text("4711")
        (tmp_path / "tailrace.json").write_text('{"name": "fraud", "topics": ["payments"], "sink": "decisions"}')
        (tmp_path / "tailrace-python.json").write_text(
            '{"risk": {"rows": 3, "calls": 2, "most_rows": 2, "python_ms": 0.5, "waited_ms": 0.1, "trip_ms": 0.9,'
            ' "failed": 0, "replaced": 0}}'
        )

    def test_its_query_continues(self, tmp_path: Path) -> None:
        acquire_and_release(tmp_path)

    def test_another_query_is_refused(self, tmp_path: Path) -> None:
        assert (
            Checkpoint(tmp_path).other_owner(Owner("other", ("payments",), "decisions"))
            == "query 'fraud', which reads payments"
        )

    def test_its_costs_are_known(self, tmp_path: Path) -> None:
        cost = read_checkpoint(Checkpoint(tmp_path)).python["risk"]
        assert (
            cost_in_words(cost) == "3 rows, 1.5 rows/call, 0.500 ms/row in Python, 0.10 ms queued, 0.90 ms round trip"
        )


@pytest.mark.parametrize("costs", ['{"risk": {"rows": 3}}', '{"risk": 3}', "[]"])
def test_costs_of_an_unknown_version_are_unknown(tmp_path: Path, costs: str) -> None:
    (tmp_path / "tailrace-python.json").write_text(costs)
    assert read_checkpoint(Checkpoint(tmp_path)).python == {}


def test_costs_are_not_written_after_the_lock_is_released(tmp_path: Path) -> None:
    here = Checkpoint(tmp_path)
    here.acquire(OWNER)
    here.save_costs({"risk": {"rows": 3}})
    here.release()
    here.save_costs({"risk": {"rows": 4}})
    assert here.saved_costs() == {"risk": {"rows": 3}}


def test_a_full_disk_is_not_reported_as_a_missing_permission(tmp_path: Path) -> None:
    (tmp_path / "tailrace.new").symlink_to("/dev/full")  # where every write fails as on a full disk
    with pytest.raises(CheckpointUnwritable) as refused:
        Checkpoint(tmp_path).acquire(OWNER)
    assert refused.value.why == "No space left on device"
    assert refused.value.fix.startswith("free some space on the file system at /")
    assert "--checkpoint DIR" in refused.value.fix
    acquire_and_release_after_cleaning(tmp_path)


def acquire_and_release_after_cleaning(folder: Path) -> None:
    """The failed start has released its lock."""
    (folder / "tailrace.new").unlink()
    acquire_and_release(folder)


def test_an_exhausted_quota_is_reported_as_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CheckpointUnwritable, match="free some space") as refused:
        Checkpoint(tmp_path / "new" / "one").acquire(OWNER)
    assert refused.value.why == "Disk quota exceeded"
