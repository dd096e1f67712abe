from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give each test folders of its own, and a machine on which nothing is set and nothing is on the PATH."""
    home = tmp_path / "tailrace-home"
    monkeypatch.setenv("TAILRACE_HOME", str(home))
    for variable in ("JAVA_HOME", "TAILRACE_JAVA_HOME", "TAILRACE_IVY_SETTINGS"):
        monkeypatch.delenv(variable, raising=False)
    return home
