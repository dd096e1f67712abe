"""Find the installed PySpark without importing it: the import takes half a second."""

import importlib.metadata
import importlib.util
import os
from pathlib import Path

from tailrace.errors import VersionUnsupported

_SUPPORTED = "4.3"
_FIX = f"pip install 'pyspark=={_SUPPORTED}.*'"


def pyspark_version() -> str:
    """Return the version of the installed PySpark, such as ``4.3.0``.

    Raises:
        VersionUnsupported: PySpark is not installed.
    """
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as error:
        raise _not_installed() from error


def check_pyspark() -> str:
    """Return the version of the installed PySpark if Tailrace supports it.

    Raises:
        VersionUnsupported: PySpark has another version or is not installed.
    """
    version = pyspark_version()
    if not version.startswith(f"{_SUPPORTED}."):
        raise VersionUnsupported(
            f"PySpark {version} is installed, but Tailrace supports only PySpark {_SUPPORTED}",
            why="each Spark version plans and runs Real-Time Mode differently",
            fix=_FIX,
        )
    return version


def pyspark_jars_dir() -> Path:
    """Return the folder of Spark's jars in the installed PySpark.

    Raises:
        VersionUnsupported: PySpark is not installed, or is the client-only package, which has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise _not_installed()
    jars = Path(spec.origin).parent / "jars"
    if not jars.is_dir():
        raise VersionUnsupported(
            f"the installed PySpark has no Spark jars: {jars} does not exist",
            why="the client-only PySpark package cannot run a query on this machine",
            fix=_FIX,
        )
    return jars


def spark_home() -> Path:
    """Return the folder of the Spark that runs: ``SPARK_HOME``, or the installed PySpark.

    Raises:
        VersionUnsupported: PySpark is not installed, or is the client-only package.
    """
    return Path(os.environ.get("SPARK_HOME") or pyspark_jars_dir().parent)


def ivy_jar() -> Path:
    """Return the jar of the Ivy resolver that Spark uses.

    Raises:
        VersionUnsupported: The installed PySpark has no Ivy jar.
    """
    folder = pyspark_jars_dir()
    jars = sorted(folder.glob("ivy-*.jar"))
    if not jars:
        raise VersionUnsupported(f"the installed PySpark is incomplete: {folder} has no Ivy jar", fix=_FIX)
    return jars[-1]


def _not_installed() -> VersionUnsupported:
    return VersionUnsupported("PySpark is not installed in this Python environment", fix=_FIX)
