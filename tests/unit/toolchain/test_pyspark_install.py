import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import VersionUnsupported
from tailrace.toolchain import check_pyspark, pyspark_jars_dir, pyspark_version
from tailrace.toolchain.spark import ivy_jar


def test_the_installed_pyspark_is_described_without_importing_it() -> None:
    program = "import sys; from tailrace.toolchain import *; print(check_pyspark(), 'pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [pyspark_version(), "False"]


def test_its_jars_include_spark_and_ivy() -> None:
    assert list(pyspark_jars_dir().glob("spark-core_*.jar"))
    assert ivy_jar().is_file()


@pytest.mark.parametrize("version", ["4.2.1", "4.30.0", "5.0.0", "3.5.6"])
def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: version)
    with pytest.raises(VersionUnsupported, match=f"PySpark {version} is installed") as refused:
        check_pyspark()
    assert "pip install" in refused.value.fix


@pytest.mark.parametrize("version", ["4.3.0", "4.3.1", "4.3.0.dev1"])
def test_the_tested_line_is_accepted(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: version)
    assert check_pyspark() == version


def test_a_missing_pyspark_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    for question in (check_pyspark, pyspark_jars_dir):
        with pytest.raises(VersionUnsupported, match="not installed"):
            question()


def test_a_client_without_spark_in_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("pyspark", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    with pytest.raises(VersionUnsupported, match="has no Spark jars"):
        pyspark_jars_dir()
