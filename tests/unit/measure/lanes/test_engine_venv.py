"""An engine's Python environment, with a script in the place of the Python that runs venv and pip."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.errors import LaneUnavailable
from tailrace.measure.lanes import engine_python as pythons
from tailrace.measure.lanes import engine_python as venv
from tailrace.measure.lanes.engine_python import ensure_venv, find_python, site_packages, venv_python
from tailrace.measure.lanes.engine_setup import Engine

VENV = 'if [ "$2" = venv ]; then mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"; : > "$4/bin/python"; exit; fi\n'
INSTALLS = VENV + 'echo "Collecting one==1"; : > "${4%/bin/python}/lib/python3.11/site-packages/one.py"\n'

Script = Callable[[str], Path]
Calls = Callable[[], list[str]]
WaitUntil = Callable[[Callable[[], bool], str], None]


@pytest.fixture
def locked(engine: Engine) -> Engine:
    (engine.programs / "requirements.lock").write_text(f"one==1 \\\n    --hash=sha256:{'0' * 64}\n")
    return engine


@pytest.fixture
def python_is(monkeypatch: pytest.MonkeyPatch, script: Script) -> Callable[[str], None]:
    def use(body: str) -> None:
        monkeypatch.setattr(sys, "executable", str(script(body)))

    return use


def set_up(engine: Engine, announce: Callable[[str], None] = lambda _text: None) -> None:
    with engine.set_up(announce):
        ensure_venv(engine, None, announce)


def test_an_environment_is_created_once_and_appears_complete(
    locked: Engine, python_is: Callable[[str], None], calls: Calls
) -> None:
    python_is(INSTALLS)
    said: list[str] = []
    set_up(locked, said.append)
    assert venv_python(locked).is_file()
    assert (site_packages(locked) / "one.py").is_file()
    assert venv_python(locked).is_relative_to(locked.folder)
    assert said == [
        f"Some Engine: setting up its Python packages in {locked.folder}, once.",
        "Some Engine: 1 of 1 packages (one)",
    ]
    created, installed = calls()
    assert "--without-pip" in created
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(installed.split())


def test_the_next_run_needs_no_network(locked: Engine, python_is: Callable[[str], None]) -> None:
    python_is(INSTALLS)
    set_up(locked)
    python_is("exit 1\n")
    set_up(locked, pytest.fail)


def test_build_requirements_are_installed_first(locked: Engine, python_is: Callable[[str], None], calls: Calls) -> None:
    (locked.programs / "build.lock").write_text("setuptools==1")
    python_is(INSTALLS)
    set_up(locked)
    _, first, second = calls()
    assert first.endswith("build.lock")
    assert "--no-build-isolation" in second


def test_another_lock_has_another_environment(locked: Engine, python_is: Callable[[str], None]) -> None:
    python_is(INSTALLS)
    set_up(locked)
    before = venv_python(locked)
    (locked.programs / "requirements.lock").write_text("one==2")
    set_up(locked)
    assert venv_python(locked) != before
    assert venv_python(locked).is_file()


def test_an_environment_without_its_python_is_replaced(
    locked: Engine, python_is: Callable[[str], None], calls: Calls
) -> None:
    python_is(INSTALLS)
    set_up(locked)
    venv_python(locked).unlink()
    venv_python(locked).symlink_to("/nowhere/python")
    set_up(locked)
    assert venv_python(locked).is_file()
    assert len(calls()) == 4


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("WARNING: Retrying after connection broken by host='registry.example.org'", "could not be reached"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            "checksum of a download differs",
        ),
        ("ERROR: No matching distribution found for one==1", "has no one==1 for this machine"),
        ("error: command 'gcc' failed: No such file or directory", "command 'gcc' failed"),
        ("", "the installer failed"),
    ],
)
def test_a_failed_install_is_reported_without_addresses_and_removed(
    locked: Engine, python_is: Callable[[str], None], output: str, why: str
) -> None:
    python_is(f'{VENV}echo "{output}" >&2\nexit 1\n')
    with pytest.raises(LaneUnavailable) as refused:
        set_up(locked)
    assert why in refused.value.why
    assert "example.org" not in refused.value.detail
    assert [path.name for path in locked.folder.iterdir()] == ["lock"]


def test_a_slow_install_is_killed(
    locked: Engine, python_is: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv, "_LONGEST_S", 0.3)
    python_is("exec sleep 60\n")
    with pytest.raises(LaneUnavailable, match="could not be set up") as refused:
        set_up(locked)
    assert "took longer than" in refused.value.why


def test_a_python_without_installers_makes_the_lane_unavailable(
    locked: Engine, python_is: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    python_is(INSTALLS)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(venv.shutil, "which", lambda _name: None)
    with pytest.raises(LaneUnavailable) as refused:
        set_up(locked)
    assert "neither pip nor uv" in refused.value.why


def test_uv_replaces_a_missing_pip(
    locked: Engine,
    python_is: Callable[[str], None],
    script: Script,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    python_is(INSTALLS)
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\necho uv \"$@\" >> '{tmp_path / 'log'}'\n")
    uv.chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    set_up(locked)
    assert calls()[-1].startswith("uv pip install --python")
    assert "--require-hashes" in calls()[-1]


def test_two_processes_create_one_environment(
    locked: Engine, python_is: Callable[[str], None], calls: Calls, wait_until: WaitUntil, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    python_is(f"{VENV}until [ -e '{gate}' ]; do sleep 0.05; done\n")
    said: list[str] = []
    threads = [threading.Thread(target=set_up, args=(locked, said.append)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: any("Another process" in text for text in said), "one waits for the other")
    gate.touch()
    for thread in threads:
        thread.join(20)
    assert venv_python(locked).is_file()
    assert len(calls()) == 2


def test_leftovers_of_a_killed_install_are_replaced(
    locked: Engine, python_is: Callable[[str], None], script: Script, calls: Calls, wait_until: WaitUntil
) -> None:
    hangs = script(f'{VENV}echo half > "${{4%/bin/python}}/half"\nexec sleep 600\n')
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from tailrace.measure.lanes import engine_setup as module, engine_python as venv\n"
        f"module.PROGRAMS = Path({str(locked.programs.parent)!r})\n"
        f"sys.executable = {str(hangs)!r}\n"
        "engine = module.Engine('some-engine', '1.2', 'Some Engine')\n"
        "with engine.set_up(print):\n    venv.ensure_venv(engine, None, print)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        wait_until(lambda: bool(list(locked.folder.glob("staging-*/half"))), "the installer is half way")
        os.killpg(process.pid, signal.SIGKILL)
    assert list(locked.folder.glob("staging-*"))
    assert not venv_python(locked).exists()
    python_is(INSTALLS)
    set_up(locked)
    assert venv_python(locked).is_file()
    assert not list(locked.folder.glob("staging-*"))


def test_the_running_python_is_used_if_it_fits() -> None:
    assert find_python(None) == Path(sys.executable)
    assert find_python(sys.version_info[:2]) == Path(sys.executable)


def test_an_older_python_is_searched_and_verified(monkeypatch: pytest.MonkeyPatch, script: Script) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    monkeypatch.setattr(pythons, "_USUAL_PLACES", ())
    older = script("echo 3.12\n")
    monkeypatch.setattr(
        pythons.shutil, "which", lambda name: str(older) if name in {"python3.11", "python3.12"} else None
    )
    assert find_python((3, 12)) == older
    script("echo 2.7\n")
    assert find_python((3, 12)) is None
    monkeypatch.setattr(pythons.shutil, "which", lambda _name: "/nowhere/python")
    assert find_python((3, 12)) is None


def test_without_a_fitting_python_the_error_names_one(locked: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "find_python", lambda _newest: None)
    with pytest.raises(LaneUnavailable) as refused, locked.set_up(pytest.fail):
        ensure_venv(locked, (3, 12), pytest.fail)
    assert "up to 3.12" in refused.value.why
    assert "python3.12" in refused.value.fix
