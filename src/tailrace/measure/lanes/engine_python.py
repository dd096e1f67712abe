"""A Python environment for an engine, created from a lock file with the version and checksum of every package.

Any installer on this machine makes it, in a folder that gets its name only when it is complete. Nothing activates it: a
lane runs its ``bin/python``, which finds its packages by its own path.
"""

import glob
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tailrace.measure.lane import Announce
from tailrace.measure.lanes.engine_setup import CHECK_NETWORK, Engine
from tailrace.toolchain.addresses import redact_addresses
from tailrace.toolchain.java_download import CHECKSUM_DIFFERS, CHECKSUM_WHY, NO_INSTALLER, UNREACHABLE
from tailrace.toolchain.staging import staging

_LONGEST_S = 1800.0
"""The time limit of one step. The largest downloads half a gigabyte."""

_REPORT_EVERY_S = 2.0
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)
_COLLECTED = re.compile(r"^Collecting ([A-Za-z0-9._-]+)")
_BUILD_LOCK = "build.lock"


def venv_python(engine: Engine) -> Path:
    """Return the interpreter of the engine's environment. It exists once the engine is set up."""
    return _folder(engine) / "bin" / "python"


def site_packages(engine: Engine) -> Path:
    """Return the folder with the packages of the environment."""
    for packages in (_folder(engine) / "lib").glob("python3.*/site-packages"):
        return packages
    raise engine.refused("its Python environment no longer exists", "try again")


def ensure_venv(engine: Engine, newest: tuple[int, int] | None, announce: Announce) -> None:
    """Create the environment if it is missing. The caller holds the lock of the engine's folder.

    Args:
        engine: The engine. Its ``requirements.lock`` lists the packages; its ``build.lock``, if any, what is needed to
            build those that are published only as sources.
        newest: The newest Python that the engine supports, if there are newer ones.
        announce: Called with the progress.

    Raises:
        LaneUnavailable: The set-up failed; the error says why.
    """
    if venv_python(engine).is_file():
        return
    python = find_python(newest)
    if python is None:
        assert newest is not None  # noqa: S101 - without a limit the running Python fits
        limit, running = (".".join(map(str, version)) for version in (newest, sys.version_info[:2]))
        raise engine.refused(
            f"it is published for Python up to {limit}, this is Python {running}, and no older one was found",
            f"install Python {limit} so that `python{limit}` is on the PATH, and try again",
        )
    announce(f"{engine.title}: setting up its Python packages in {engine.folder}, once.")
    with staging(engine.folder) as staged:
        _run(engine, [str(python), "-m", "venv", "--without-pip", str(staged)], announce)
        for lock, options in _locks(engine):
            installer = [*_installer(engine, staged / "bin" / "python"), *options]
            _run(engine, [*installer, "--requirement", str(lock)], announce, total=len(_packages(lock)))
        folder = _folder(engine)
        shutil.rmtree(folder, ignore_errors=True)  # an environment whose Python no longer exists
        staged.replace(folder)


def _folder(engine: Engine) -> Path:
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock, _ in _locks(engine))).hexdigest()
    return engine.folder / f"venv-{digest[:16]}"


def _locks(engine: Engine) -> list[tuple[Path, list[str]]]:
    main = engine.programs / "requirements.lock"
    build = engine.programs / _BUILD_LOCK
    if not build.is_file():
        return [(main, ["--only-binary", ":all:"])]
    # Without isolation a package is built with what the lock names, not with what happens to be newest.
    return [(build, ["--only-binary", ":all:"]), (main, ["--no-build-isolation"])]


def _packages(lock: Path) -> list[str]:
    return _PACKAGE.findall(lock.read_text(encoding="utf-8"))


def _installer(engine: Engine, python: Path) -> list[str]:
    checked = ["--no-deps", "--require-hashes"]
    if importlib.util.find_spec("pip") is not None:
        # Two tries: the default of six makes a machine without a network wait for half a minute.
        quick = ["--retries", "1", "--timeout", "30"]
        quiet = ["--no-input", "--disable-pip-version-check", "--no-compile", "--progress-bar", "off"]
        return [sys.executable, "-m", "pip", "--python", str(python), "install", *quick, *quiet, *checked]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", str(python), *checked]
    raise engine.refused(NO_INSTALLER, "run `python -m ensurepip` or install uv, and try again")


def _run(engine: Engine, command: Sequence[str], announce: Announce, total: int = 0) -> None:
    # The user's pip settings apply, such as a mirror. These two would refuse this environment, or use another.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        bound = threading.Timer(_LONGEST_S, process.kill)
        bound.start()
        try:
            output = _read(process, lambda done, name: announce(f"{engine.title}: {done} of {total} packages ({name})"))
        except BaseException:
            # Anything that ends the reading early, Ctrl-C too, ends the installer.
            process.kill()
            raise
        finally:
            bound.cancel()
    if process.returncode != 0:
        why = f"it took longer than {_LONGEST_S:g} s" if process.returncode == -signal.SIGKILL else _reason(output)
        raise engine.refused(why, CHECK_NETWORK, detail=redact_addresses(output))


def _read(process: subprocess.Popen[str], progress: Callable[[int, str], None]) -> str:
    """Return the output of the installer, and report the packages that it names, but not too often."""
    assert process.stdout is not None  # noqa: S101 - for the type checker
    printed: list[str] = []
    done, reported_s = 0, 0.0
    for line in process.stdout:
        printed.append(line)
        if (collected := _COLLECTED.match(line)) is not None:
            done += 1
            if time.monotonic() - reported_s >= _REPORT_EVERY_S:
                progress(done, collected.group(1))
                reported_s = time.monotonic()
    return "".join(printed)


def _reason(output: str) -> str:
    if CHECKSUM_DIFFERS.search(output):
        return CHECKSUM_WHY
    if UNREACHABLE.search(output):
        return "PyPI, or the mirror in pip's settings, could not be reached"
    wanted = re.search(r"No matching distribution found for (\S+)", output)
    if wanted is not None:
        return f"PyPI, or the mirror in pip's settings, has no {wanted.group(1)} for this machine and this Python"
    errors = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    return redact_addresses(errors[-1] if errors else (output.strip() or "the installer failed")[-200:])


OLDEST = (3, 11)
"""The oldest Python that the lock files support."""

_USUAL_PLACES = ("~/.pyenv/versions/{version}.*/bin/python", "~/.local/share/uv/python/cpython-{version}.*/bin/python3")
_ASK_TIMEOUT_S = 20.0


def find_python(newest: tuple[int, int] | None) -> Path | None:
    """Return a Python not newer than ``newest``: the running one if it fits, or another one on this machine."""
    if newest is None or sys.version_info[:2] <= newest:
        return Path(sys.executable)
    for minor in range(newest[1], OLDEST[1] - 1, -1):
        for python in _installed(f"3.{minor}"):
            if _is(python, f"3.{minor}"):
                return python
    return None


def _installed(version: str) -> Iterator[Path]:
    if (python := shutil.which(f"python{version}")) is not None:
        yield Path(python)
    for pattern in _USUAL_PLACES:
        place = os.path.expanduser(pattern.format(version=version))  # noqa: PTH111 - a pattern, not a path
        yield from map(Path, sorted(glob.glob(place), reverse=True))  # noqa: PTH207 - an absolute pattern


def _is(python: Path, version: str) -> bool:
    """Return whether it runs and has this version; a script of a version manager may do neither."""
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", ask], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version
