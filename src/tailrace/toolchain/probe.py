"""Run a ``java`` executable to find its version and home, and cache the result.

Starting a JVM takes 0.1 to 0.3 s, and commands such as ``tailrace check`` need the result at every run.
"""

import json
import os
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.toolchain.directories import cache_dir

_TIMEOUT_S = 10.0
_VECTOR_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Probe:
    """What one Java reports about itself."""

    home: str
    version: str
    major: int
    has_vector_module: bool
    """Whether it has the module that Spark's launcher always requests."""


class ProbeError(Exception):
    """The executable is not a working Java; the message completes a sentence that begins with its path."""


def probe(executable: Path) -> Probe:
    """Return what ``executable`` reports about itself; use the cache if the file has not changed.

    Raises:
        ProbeError: It does not exist, does not run, or is not Java.
    """
    real = Path(os.path.realpath(executable))
    try:
        stat = real.stat()
    except OSError as error:
        raise ProbeError("does not exist") from error
    key = f"{real}|{stat.st_mtime_ns}|{stat.st_size}"
    cached = _read_cached(key)
    if cached is not None:
        return cached
    answer = _ask(executable)
    # A version manager's `java` is a script that may start another Java tomorrow: do not cache it.
    if real == Path(os.path.realpath(Path(answer.home) / "bin" / "java")):
        _write_cached(key, answer)
    return answer


def _ask(executable: Path) -> Probe:
    output = _run(executable, "-XshowSettings:properties", "-version")
    properties = dict(re.findall(r"^\s*(java\.[\w.]+) = (.*?)\s*$", output, re.MULTILINE))
    try:
        home, version = properties["java.home"], properties["java.version"]
        # Java 8 and older report 1.8.
        major = int(properties["java.specification.version"].removeprefix("1.").partition(".")[0])
    except (KeyError, ValueError) as error:
        raise ProbeError("does not answer like Java") from error
    # Java 8 has no modules and fails on --list-modules.
    modules = _run(executable, "--list-modules") if major > 8 else ""
    has_vector_module = re.search(rf"^{re.escape(_VECTOR_MODULE)}\b", modules, re.MULTILINE) is not None
    return Probe(home, version, major, has_vector_module)


def _run(executable: Path, *arguments: str) -> str:
    command = [str(executable), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"did not answer within {_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise ProbeError(f"does not run ({error.strerror or error})") from error
    if done.returncode != 0:
        raise ProbeError(f"does not run (exit status {done.returncode})")
    return done.stdout + done.stderr


def _cache_file() -> Path:
    return cache_dir() / "java-probes.json"


def _cached_probes() -> dict[str, dict[str, object]]:
    try:
        content = json.loads(_cache_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_cached(key: str) -> Probe | None:
    match _cached_probes().get(key):
        case {
            "home": str(home),
            "version": str(version),
            "major": int(major),
            "has_vector_module": bool(has_vector_module),
        }:
            return Probe(home, version, major, has_vector_module)
        case _:
            return None


def _write_cached(key: str, answer: Probe) -> None:
    content = _cached_probes() | {key: asdict(answer)}
    target = _cache_file()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=target.name, dir=target.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        Path(name).replace(target)
    except OSError:
        # Without a cache the next run starts Java again.
        return
