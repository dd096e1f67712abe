"""Finding, fetching and unpacking interpreters, with scripts in the place of Pythons."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

from . import interpreters
from .interpreters import ask_version, find_interpreter, pinned_build, this_platform, unpack
from .pythons import SUPPORTED, environment_folder
from .report import NotAvailable

OTHER = "3.13" if sys.version_info[:2] != (3, 13) else "3.12"
"""A version that does not run this test."""


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Python but the running one; return the user's home."""
    home = tmp_path / "user"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", "")
    return home


def test_the_running_python_comes_first(bare: Path) -> None:
    running = "{}.{}".format(*sys.version_info)
    interpreter = find_interpreter(running)
    assert interpreter is not None
    assert (interpreter.executable, interpreter.origin) == (Path(sys.executable), "running")
    assert interpreter.version.startswith(f"{running}.")


def test_a_shim_without_a_python_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script(tmp_path / "shims" / f"python{OTHER}", "echo 'version not installed' >&2; exit 127")
    works = script(tmp_path / "bin" / f"python{OTHER}", f"echo CPython {OTHER}.4")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "shims"), "", str(tmp_path / "bin")]))
    interpreter = find_interpreter(OTHER)
    assert interpreter is not None
    assert (interpreter.executable, interpreter.version, interpreter.origin) == (works, f"{OTHER}.4", "PATH")


def test_pyenv_is_searched_newest_first(bare: Path) -> None:
    for patch in (1, 4):
        script(bare / f".pyenv/versions/{OTHER}.{patch}/bin/python", f"echo CPython {OTHER}.{patch}")
    interpreter = find_interpreter(OTHER)
    assert interpreter is not None
    assert (interpreter.version, interpreter.origin) == (f"{OTHER}.4", "pyenv")


@pytest.mark.parametrize(
    "body",
    ["echo CPython 3.1.0", "echo PyPy {version}.1", "echo CPython {version}.1; exit 1", "exit 0"],
    ids=["another version", "another implementation", "a failure", "silence"],
)
def test_what_is_not_this_cpython_is_not_found(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str
) -> None:
    script(tmp_path / f"python{OTHER}", body.format(version=OTHER))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_interpreter(OTHER) is None


def test_a_python_that_cannot_make_environments_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask_version(Path(sys.executable)) is not None
    monkeypatch.setattr(interpreters, "_ASK", interpreters._ASK.replace("ensurepip", "absent_module"))
    assert ask_version(Path(sys.executable)) is None


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_supported_python_is_pinned(version: str) -> None:
    build = pinned_build(version, "linux-x86_64")
    assert build.version.startswith(f"{version}.")
    assert build.file_name == f"cpython-{build.version}-linux-x86_64.jar"


def test_a_platform_without_a_build_is_named() -> None:
    with pytest.raises(NotAvailable, match="no pinned build for plan9-mips"):
        pinned_build(SUPPORTED[0], "plan9-mips")


def test_a_jar_becomes_a_home(tmp_path: Path) -> None:
    inside = f"org/example/{this_platform()}"
    with zipfile.ZipFile(tmp_path / "python.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "")
        jar.writestr(f"{inside}/bin/python3.12", "#!/bin/sh\necho CPython 3.12.1\n")
        jar.writestr(f"{inside}/lib/python3.12/lib-dynload/_ctypes.so", "module")
        jar.writestr(f"{inside}/libffi.so.7", "library")
    home = tmp_path / "home"
    unpack(tmp_path / "python.jar", home, "3.12")
    assert ask_version(home / "bin" / "python3.12") == "3.12.1"
    moved = home.rename(tmp_path / "moved")  # the home gets its final place after it is complete
    assert (moved / "lib/python3.12/lib-dynload/libffi.so.7").read_text(encoding="utf-8") == "library"


def test_a_jar_without_a_python_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "python.jar", "w") as jar:
        jar.writestr("org/example/bin/python3.11", "")
    with pytest.raises(NotAvailable, match=r"no Python 3\.12"):
        unpack(tmp_path / "python.jar", tmp_path / "home", "3.12")


def test_another_lock_or_interpreter_means_another_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    lock = tmp_path / "requirements.lock"
    lock.write_text("one==1\n", encoding="utf-8")
    here = interpreters.Interpreter(tmp_path / "python", "3.12.1", "PATH")
    folders = {environment_folder(here, lock)}
    assert environment_folder(here, lock) in folders
    folders.add(environment_folder(interpreters.Interpreter(tmp_path / "python", "3.12.2", "PATH"), lock))
    folders.add(environment_folder(interpreters.Interpreter(tmp_path / "other", "3.12.1", "PATH"), lock))
    lock.write_text("one==2\n", encoding="utf-8")
    folders.add(environment_folder(here, lock))
    assert len(folders) == 4
    assert all(folder.name.startswith("3.12-") for folder in folders)
