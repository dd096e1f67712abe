from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.measure.lanes import engine_setup as module
from tailrace.measure.lanes.engine_setup import Engine
from tailrace.toolchain import Java

Script = Callable[[str], Path]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    """An engine whose programs and locks are the test's own."""
    monkeypatch.setattr(module, "PROGRAMS", tmp_path / "programs")
    engine = Engine("some-engine", "1.2", "Some Engine")
    engine.programs.mkdir(parents=True)
    return engine


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Write an executable script that notes its arguments, one call per line, in the file ``log``."""

    def write(body: str) -> Path:
        path = tmp_path / "bin" / "program"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path / 'log'}'\n{body}")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    """What the script was called with so far."""

    def read() -> list[str]:
        log = tmp_path / "log"
        return log.read_text().splitlines() if log.exists() else []

    return read


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return Java(tmp_path, tmp_path / "bin" / "program", "17.0.1", 17, "PATH")
