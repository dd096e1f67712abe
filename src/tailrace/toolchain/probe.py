"""What a ``java`` executable says about itself, asked once and remembered.

Starting a JVM costs 0.1 to 0.3 s, and a command such as ``tailrace check`` asks every time it runs.
"""

import json
import os
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tailrace.toolchain.places import cache_dir

_TIMEOUT_S = 10.0
_VECTOR_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True)
class Probe:
    """The answers of one Java."""

    home: str
    version: str
    major: int
    has_vector_module: bool
    """Whether it has the module that Spark's launcher always asks for."""


class ProbeError(Exception):
    """The executable gave no answer; the message says why, as the end of a sentence about it."""


def probe(executable: Path) -> Probe:
    """Return what ``executable`` says about itself, from memory where it has not changed since.

    Raises:
        ProbeError: It does not exist, does not run, or is not Java.
    """
    real = Path(os.path.realpath(executable))
    try:
        stat = real.stat()
    except OSError as error:
        raise ProbeError("does not exist") from error
    key = f"{real}|{stat.st_mtime_ns}|{stat.st_size}"
    remembered = _recall(key)
    if remembered is not None:
        return remembered
    answer = _ask(executable)
    # A version manager's `java` is a script that starts another Java from day to day: ask it each time.
    if real == Path(os.path.realpath(Path(answer.home) / "bin" / "java")):
        _remember(key, answer)
    return answer


def _ask(executable: Path) -> Probe:
    output = _run(executable, "-XshowSettings:properties", "-version")
    properties = dict(re.findall(r"^\s*(java\.[\w.]+) = (.*?)\s*$", output, re.MULTILINE))
    try:
        home, version = properties["java.home"], properties["java.version"]
        # Java 8 and older call themselves 1.8.
        major = int(properties["java.specification.version"].removeprefix("1.").partition(".")[0])
    except (KeyError, ValueError) as error:
        raise ProbeError("does not answer as Java does") from error
    # Java 8 knows no modules and fails on the question for them.
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


def _memory() -> Path:
    return cache_dir() / "java-probes.json"


def _all_remembered() -> dict[str, dict[str, object]]:
    try:
        content = json.loads(_memory().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _recall(key: str) -> Probe | None:
    match _all_remembered().get(key):
        case {
            "home": str(home),
            "version": str(version),
            "major": int(major),
            "has_vector_module": bool(has_vector_module),
        }:
            return Probe(home, version, major, has_vector_module)
        case _:
            return None


def _remember(key: str, answer: Probe) -> None:
    content = _all_remembered() | {key: asdict(answer)}
    target = _memory()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=target.name, dir=target.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        Path(name).replace(target)
    except OSError:
        # Without memory the next run asks again; nothing else is lost.
        return
