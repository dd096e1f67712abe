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
from tailrace.errors import CheckpointForeign, CheckpointInUse, CheckpointUnwritable

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


def test_while_another_process_holds_it_it_is_refused_with_that_process_named(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder, pytest.raises(CheckpointInUse) as refused:
        Checkpoint(tmp_path).acquire(OWNER)
    assert f"by process {holder.pid}" in refused.value.what
    assert "--checkpoint" in refused.value.fix


def test_the_death_of_its_holder_releases_it(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder:
        holder.kill()
        holder.wait(timeout=20)
        acquire_and_release(tmp_path)


def test_within_one_process_only_one_query_holds_it_and_release_lets_the_next_one_in(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path)
    first.acquire(OWNER)
    with pytest.raises(CheckpointInUse):
        Checkpoint(tmp_path).acquire(OWNER)
    first.release()
    first.release()  # a second time does no harm
    acquire_and_release(tmp_path)


def test_the_folder_is_made_and_says_whose_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "below"
    acquire_and_release(folder)
    assert json.loads((folder / "tailrace.json").read_text()) == {
        "name": "fraud",
        "topics": ["payments"],
        "sink": "decisions",
    }
    assert (folder / ".tailrace.lock").read_text() == str(os.getpid())


def test_the_same_query_goes_on_also_with_another_topic_beside_its_own(tmp_path: Path) -> None:
    acquire_and_release(tmp_path)
    write_metadata(tmp_path)
    acquire_and_release(tmp_path, Owner("fraud", ("payments", "refunds"), "decisions"))


@pytest.mark.parametrize(
    "other", [Owner("clicks", ("payments",), "decisions"), Owner("fraud", ("clicks",), "decisions")]
)
def test_the_checkpoint_of_another_query_is_refused_and_left_as_it_was(tmp_path: Path, other: Owner) -> None:
    acquire_and_release(tmp_path, other)
    write_metadata(tmp_path)
    before = (tmp_path / "tailrace.json").read_text()
    with pytest.raises(CheckpointForeign) as refused:
        Checkpoint(tmp_path).acquire(OWNER)
    assert repr(other.name) in refused.value.what
    assert ", ".join(other.topics) in refused.value.what
    assert (tmp_path / "tailrace.json").read_text() == before
    acquire_and_release(tmp_path, other)  # the refusal kept no lock


def test_a_folder_that_no_query_ever_ran_on_is_free_to_take(tmp_path: Path) -> None:
    acquire_and_release(tmp_path, Owner("refused-at-its-start", ("clicks",), "decisions"))
    acquire_and_release(tmp_path)
    assert json.loads((tmp_path / "tailrace.json").read_text())["name"] == "fraud"


def test_without_our_file_the_topics_in_sparks_offsets_tell_whose_it_is(tmp_path: Path) -> None:
    write_offsets(tmp_path, 0, '{"payments":{"0":5}}')
    write_offsets(tmp_path, 10, '{"clicks":{"0":5}}', '{"views":{"0":1,"1":2}}')
    write_offsets(tmp_path, 9, '{"payments":{"0":9}}')
    with pytest.raises(CheckpointForeign, match="clicks, views"):
        Checkpoint(tmp_path).acquire(OWNER)
    acquire_and_release(tmp_path, Owner("other", ("views",), "out"))


@pytest.mark.parametrize("line", ["-", "17", '{"seq":5}', "not json"])
def test_offsets_of_sources_that_are_not_kafka_say_nothing_about_topics(tmp_path: Path, line: str) -> None:
    write_offsets(tmp_path, 0, line)
    acquire_and_release(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "x"}', '{"name": "x", "topics": 3, "sink": "y"}'])
def test_an_owner_file_that_cannot_be_read_gives_way_to_sparks_offsets(tmp_path: Path, content: str) -> None:
    (tmp_path / "tailrace.json").write_text(content)
    write_offsets(tmp_path, 0, '{"clicks":{"0":5}}')
    with pytest.raises(CheckpointForeign, match="another query, which reads clicks"):
        Checkpoint(tmp_path).acquire(OWNER)


def test_a_folder_that_cannot_be_made_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a regular file")
    with pytest.raises(CheckpointUnwritable) as refused:
        Checkpoint(tmp_path / "file" / "below").acquire(OWNER)
    assert str(tmp_path / "file" / "below") in refused.value.what
    assert refused.value.why == "Not a directory"


def test_a_folder_whose_owner_file_cannot_be_written_is_refused_and_let_go(tmp_path: Path) -> None:
    (tmp_path / "tailrace.json").mkdir()
    with pytest.raises(CheckpointUnwritable):
        Checkpoint(tmp_path).acquire(OWNER)
    (tmp_path / "tailrace.json").rmdir()
    acquire_and_release(tmp_path)


def test_the_last_commit_is_the_greatest_number_not_the_last_name(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path).last_commit() is None
    for batch in (9, 10, 2):
        write_commit(tmp_path, batch, "v2")
    assert Checkpoint(tmp_path).last_commit() == 10


def test_the_format_is_that_of_the_last_commit(tmp_path: Path) -> None:
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
def test_offsets_that_a_crash_cut_short_pin_nothing(tmp_path: Path, content: str) -> None:
    write_offsets(tmp_path, 0)
    (tmp_path / "offsets" / "0").write_text(content)
    assert Checkpoint(tmp_path).pinned_shuffle_partitions() is None


def test_a_location_elsewhere_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint = Checkpoint("s3a://bucket/checkpoints/fraud")
    checkpoint.acquire(OWNER)
    assert checkpoint.commit_format() is None
    assert checkpoint.location == "s3a://bucket/checkpoints/fraud"
    assert (checkpoint.path, checkpoint.last_commit(), checkpoint.pinned_shuffle_partitions()) == (None, None, None)
    checkpoint.release()
    assert list(tmp_path.iterdir()) == [], "nothing was made on this machine"


def test_a_file_address_means_a_folder_on_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert Checkpoint(folder.as_uri()).path == folder
    assert Checkpoint(f"file:{tmp_path}/x").location == f"{tmp_path}/x"


def test_a_relative_location_is_pinned_to_where_the_program_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Checkpoint(default_location("fraud")).path == tmp_path / ".tailrace" / "checkpoints" / "fraud"
    assert Checkpoint("50%25").path == tmp_path / "50%25", "only an address is percent-encoded"


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_what_spark_was_still_writing_is_cleared_away(tmp_path: Path, log: str) -> None:
    write_offsets(tmp_path, 0)
    (tmp_path / "commits").mkdir()
    for name in (".0.4f6f.TID7.tmp", "..0.4f6f.TID7.tmp.crc"):
        (tmp_path / log / name).write_text("half")
    acquire_and_release(tmp_path)
    assert not [file for file in (tmp_path / log).iterdir() if ".tmp" in file.name]
    assert sorted(file.name for file in (tmp_path / "offsets").iterdir()) == [".0.crc", "0"]


def test_the_state_of_a_first_batch_that_never_ended_is_put_aside(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        (tmp_path / "state" / "0").mkdir(parents=True)
        (tmp_path / "state" / "0" / "1.changelog").write_text(attempt)
        acquire_and_release(tmp_path)
        assert not (tmp_path / "state").exists()
        assert (tmp_path / "state.abandoned" / "0" / "1.changelog").read_text() == attempt


@pytest.mark.parametrize("batch_in", ["offsets", "commits"])
def test_the_state_of_a_batch_that_is_in_a_log_stays(tmp_path: Path, batch_in: str) -> None:
    if batch_in == "offsets":
        write_offsets(tmp_path, 0)
    else:
        write_commit(tmp_path, 0, "v2")
    (tmp_path / "state").mkdir()
    acquire_and_release(tmp_path)
    assert (tmp_path / "state").exists()


def test_what_functions_cost_is_kept_for_the_next_check(tmp_path: Path) -> None:
    here = Checkpoint(tmp_path)
    here.acquire(OWNER)
    assert here.saved_costs() == {}
    here.save_costs({})
    assert here.saved_costs() == {}
    here.save_costs({"risk": {"rows": 3, "python_ms": 0.5}})
    assert Checkpoint(tmp_path).saved_costs() == {"risk": {"rows": 3, "python_ms": 0.5}}
    (tmp_path / "tailrace-python.json").write_text("{half")
    assert here.saved_costs() == {}


def test_costs_are_not_written_to_a_folder_that_is_no_longer_locked(tmp_path: Path) -> None:
    here = Checkpoint(tmp_path)
    here.acquire(OWNER)
    here.save_costs({"risk": {"rows": 3}})
    here.release()
    here.save_costs({"risk": {"rows": 4}})
    assert here.saved_costs() == {"risk": {"rows": 3}}


def test_a_full_disk_is_not_taken_for_a_folder_without_permission(tmp_path: Path) -> None:
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


def test_a_quota_that_is_used_up_is_a_full_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CheckpointUnwritable, match="free some space") as refused:
        Checkpoint(tmp_path / "new" / "one").acquire(OWNER)
    assert refused.value.why == "Disk quota exceeded"
