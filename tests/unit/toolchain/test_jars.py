"""The jar cache, with a fetcher that writes files in the place of Ivy."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tailrace.errors import JarCorrupt, JarMissing
from tailrace.toolchain import Jar, Java, jar_status, read_lock
from tailrace.toolchain.ivy import Progress
from tailrace.toolchain.jars import JarCache

JAVA = Java(Path("/j"), Path("/j/bin/java"), "17.0.1", 17, "PATH")


def jar(name: str, set_name: str = "broker") -> Jar:
    return Jar(set_name, "group", name, "1", hashlib.sha256(name.encode()).hexdigest())


LOCK = (jar("a"), jar("b"), jar("c", "connector"))


class Fetcher:
    """Puts each jar's name into its file, as the checksums of LOCK expect; ``alter`` changes what comes."""

    def __init__(self, alter: Callable[[Path], None] = lambda _folder: None) -> None:
        self.asked: list[list[str]] = []
        self.alter = alter

    def __call__(self, java: Java, jars: Sequence[Jar], folder: Path, progress: Progress) -> Path:
        self.asked.append([jar.artifact for jar in jars])
        for number, one in enumerate(jars, start=1):
            (folder / one.file_name).write_text(one.artifact)
            progress(number, len(jars), one.file_name)
        self.alter(folder)
        return folder


def quiet(*_: object) -> None:
    pass


def cache_with(tmp_path: Path, fetch: Fetcher) -> JarCache:
    return JarCache(tmp_path / "jars", LOCK, fetch)


def ensured(cache: JarCache, *sets: str) -> dict[str, list[Path]]:
    return cache.ensure(JAVA, sets or ("broker", "connector"), announce=quiet, progress=quiet)


def test_only_missing_jars_are_fetched_and_only_once(tmp_path: Path) -> None:
    fetch = Fetcher()
    cache = cache_with(tmp_path, fetch)
    assert [state.state for state in cache.status()] == ["missing"] * 3
    folder = tmp_path / "jars"
    assert ensured(cache, "broker") == {"broker": [folder / "a-1.jar", folder / "b-1.jar"]}
    assert ensured(cache)["connector"] == cache.paths("connector") == [folder / "c-1.jar"]
    ensured(cache)
    assert fetch.asked == [["a", "b"], ["c"]]
    assert {path.name for path in folder.iterdir()} == {"a-1.jar", "b-1.jar", "c-1.jar", "lock"}


def test_progress_and_the_reason_for_the_wait_are_reported(tmp_path: Path) -> None:
    said: list[str] = []
    steps: list[tuple[int, int, str]] = []
    cache = cache_with(tmp_path, Fetcher())
    cache.ensure(JAVA, ["broker"], announce=said.append, progress=lambda *step: steps.append(step))
    assert steps == [(1, 2, "a-1.jar"), (2, 2, "b-1.jar")]
    assert said == ["Downloading 2 jars from Maven Central, once ..."]


def test_paths_never_fetches(tmp_path: Path) -> None:
    fetch = Fetcher()
    with pytest.raises(JarMissing, match="group:a:1 is not on this machine") as missing:
        cache_with(tmp_path, fetch).paths("broker")
    assert "tailrace doctor --fix" in missing.value.fix
    assert not fetch.asked


def test_an_unknown_set_is_a_programming_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such set of jars: brokers"):
        cache_with(tmp_path, Fetcher()).paths("brokers")


def test_a_corrupt_jar_is_refused_even_with_the_same_size_and_time(tmp_path: Path) -> None:
    fetch = Fetcher()
    cache = cache_with(tmp_path, fetch)
    broken = ensured(cache)["broker"][1]
    before = broken.stat()
    broken.write_text("B")
    os.utime(broken, ns=(before.st_atime_ns, before.st_mtime_ns))
    for use in (lambda: cache.paths("broker"), lambda: ensured(cache)):
        with pytest.raises(JarCorrupt) as corrupt:
            use()
        assert str(broken) in corrupt.value.what
        assert hashlib.sha256(b"B").hexdigest() in corrupt.value.why
        assert LOCK[1].sha256 in corrupt.value.why
        assert "tailrace doctor --fix" in corrupt.value.fix
    assert cache.paths("connector"), "another set is not affected"
    assert [state.state for state in cache.status()] == ["present", "corrupt", "present"]
    assert len(fetch.asked) == 1


def test_repair_downloads_corrupt_and_missing_jars(tmp_path: Path) -> None:
    fetch = Fetcher()
    cache = cache_with(tmp_path, fetch)
    ensured(cache, "broker")
    (tmp_path / "jars" / "a-1.jar").write_text("")
    said: list[str] = []
    downloaded = cache.repair(JAVA, announce=said.append, progress=quiet)
    assert [jar.artifact for jar in downloaded] == ["a", "c"]
    assert "a-1.jar" in said[0]
    assert [state.state for state in cache.status()] == ["present"] * 3
    assert cache.repair(JAVA, announce=quiet, progress=quiet) == []
    assert len(fetch.asked) == 2


def test_a_download_with_a_wrong_checksum_is_an_error_and_removed(tmp_path: Path) -> None:
    cache = cache_with(tmp_path, Fetcher(lambda folder: (folder / "b-1.jar").write_text("evil") and None))
    with pytest.raises(JarCorrupt, match="the downloaded group:b:1 does not match the lock") as corrupt:
        ensured(cache)
    assert hashlib.sha256(b"evil").hexdigest() in corrupt.value.why
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["lock"]


def test_a_jar_that_was_not_downloaded(tmp_path: Path) -> None:
    cache = cache_with(tmp_path, Fetcher(lambda folder: (folder / "c-1.jar").unlink()))
    with pytest.raises(JarMissing, match="group:c:1 was not downloaded"):
        ensured(cache)


def test_no_network_leaves_nothing_behind(tmp_path: Path) -> None:
    def unreachable(_folder: Path) -> None:
        raise JarMissing("no network")

    cache = cache_with(tmp_path, Fetcher(unreachable))
    with pytest.raises(JarMissing, match="no network"):
        ensured(cache)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["lock"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "jars").write_text("a file where the folder should be")
    cache = JarCache(tmp_path / "jars" / "deeper", LOCK[:1], Fetcher())
    with pytest.raises(JarMissing, match="cannot write jars to") as missing:
        ensured(cache, "broker")
    assert "TAILRACE_HOME" in missing.value.fix


FETCHING = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_jars import JAVA, LOCK, Fetcher, JarCache, quiet

def say(text):
    print(text, flush=True)

def slow(staged):
    say("in the middle")
    sys.stdin.read()

JarCache(Path(sys.argv[2]), LOCK, Fetcher(slow)).ensure(JAVA, ["broker"], announce=say, progress=quiet)
"""


def start_fetching(folder: Path) -> subprocess.Popen[str]:
    """Start a process that stays in the middle of its download until its input is closed."""
    command = [sys.executable, "-c", FETCHING, str(Path(__file__).parent), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    with start_fetching(tmp_path / "jars") as first:
        assert "Downloading 2 jars" in next_line(first)
        assert next_line(first) == "in the middle\n"
        with start_fetching(tmp_path / "jars") as second:
            assert next_line(second) == f"Waiting for process {first.pid} to download the jars ...\n"
            first.communicate(timeout=60)
            rest, _ = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert rest == "", "the second fetches nothing"
    assert len(JarCache(tmp_path / "jars", LOCK).paths("broker")) == 2


def test_a_killed_download_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    with start_fetching(folder) as process:
        next_line(process)
        assert next_line(process) == "in the middle\n"
        process.kill()
        process.wait(timeout=30)
    left = list(folder.glob("staging-*"))
    assert [len(list(one.iterdir())) for one in left] == [2], "the kill came in the middle"
    cache = JarCache(folder, LOCK, Fetcher())
    assert [state.state for state in cache.status()] == ["missing"] * 3
    ensured(cache)
    assert not list(folder.glob("staging-*"))
    assert [state.state for state in cache.status()] == ["present"] * 3


def test_the_status_of_the_users_own_cache(home: Path) -> None:
    states = jar_status()
    assert [state.jar for state in states] == list(read_lock())
    assert {state.state for state in states} == {"missing"}
    assert all(state.path.parent == home / "cache" / "jars" for state in states)
