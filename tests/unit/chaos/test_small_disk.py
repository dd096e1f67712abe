"""A disk that is full on request; as any user, where the system allows mount namespaces."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.chaos import small_disk
from tailrace.chaos.small_disk import SmallDisk
from tailrace.errors import OptionRefused


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        mounted = SmallDisk(tmp_path / "disk")
    except OptionRefused as refused:
        pytest.skip(f"{refused.why}")
    with mounted:
        yield mounted


def write(disk: SmallDisk, file: Path, size: int = 100_000) -> str:
    """Write a file in a process on the disk; return its error."""
    code = f"open({str(file)!r}, 'ab').write(bytes({size}))"
    done = subprocess.run([*disk.enter, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr


def test_it_is_full_on_request_and_keeps_its_files(disk: SmallDisk, tmp_path: Path) -> None:
    file = tmp_path / "disk" / "a"
    assert write(disk, file) == ""
    disk.fill()
    assert "No space left on device" in write(disk, file)
    assert "No space left on device" in write(disk, file.with_name("b"))
    disk.empty()
    assert write(disk, file) == ""
    assert disk.outside(file).stat().st_size >= 200_000


def test_only_programs_that_enter_see_it(disk: SmallDisk, tmp_path: Path) -> None:
    write(disk, tmp_path / "disk" / "a")
    assert list((tmp_path / "disk").iterdir()) == []
    assert write(disk, tmp_path / "beside") == "", "the rest of the file system is the same"
    assert (tmp_path / "beside").exists()


def test_a_system_without_namespaces_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = tmp_path / "keeper.py"
    keeper.write_text("print('Operation not permitted')")
    monkeypatch.setattr(small_disk, "__file__", str(keeper))
    with pytest.raises(OptionRefused) as refused:
        SmallDisk(tmp_path / "disk")
    assert refused.value.why.endswith("Operation not permitted")
