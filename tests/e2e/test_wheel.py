"""The wheel: the engine is in it, and a session from it works without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import environment

import tailrace

ROOT = Path(__file__).parents[2]
PROGRAM = """
import tailrace as tr
from tailrace.toolchain import package_engine
engine = package_engine()
assert not engine.sources.exists(), engine.sources
spark = tr.session(master="local[1]", conf={"spark.ui.enabled": "false"})
print(tr.__file__, spark.range(3).count())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    done = subprocess.run(
        [*build, "--disable-pip-version-check", "--wheel-dir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"tailrace-{tailrace.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed" / "site")
    return folder / "installed" / "site"


def test_it_has_what_a_user_needs_and_no_more(installed: Path) -> None:
    names = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    assert {"tailrace/tailrace-engine.jar", "tailrace/py.typed", "tailrace/toolchain/jars.lock"} <= names
    assert "tailrace/project/template/pipeline.py.txt" in names
    assert {"tailrace/report/templates/page.html", "tailrace/report/static/report.css"} <= names
    own = {
        name for name in names if not name.startswith("tailrace/measure/lanes/programs/")
    }  # lanes compile theirs on demand
    assert not [name for name in own if name.endswith((".scala", "tailrace-engine.lock"))]


def test_a_session_from_it_has_the_engine(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(installed)}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(installed / "tailrace" / "__init__.py"), "3"]
