"""The installed PySpark, looked at without importing it: an import costs half a second and starts nothing."""

import importlib.metadata
import importlib.util
from pathlib import Path

from tailrace.errors import VersionUnsupported

_SUPPORTED = "4.3"
_FIX = f"Run `pip install 'pyspark=={_SUPPORTED}.*'`."


def pyspark_version() -> str:
    """Return the version of the installed PySpark, such as ``4.3.0``.

    Raises:
        VersionUnsupported: There is none.
    """
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as error:
        raise VersionUnsupported("PySpark is not installed in this Python environment.", fix=_FIX) from error


def check_pyspark() -> str:
    """Return the version of the installed PySpark if Tailrace works with it.

    Raises:
        VersionUnsupported: It does not, or there is none.
    """
    version = pyspark_version()
    if not version.startswith(f"{_SUPPORTED}."):
        raise VersionUnsupported(
            f"PySpark {version} is installed, and Tailrace works with PySpark {_SUPPORTED} only.",
            why="How Spark plans and runs Real-Time Mode differs from one version to the next.",
            fix=_FIX,
        )
    return version


def pyspark_jars_dir() -> Path:
    """Return the folder of Spark's own jars inside the installed PySpark.

    Raises:
        VersionUnsupported: There is no PySpark, or it is the client-only one, which has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise VersionUnsupported("PySpark is not installed in this Python environment.", fix=_FIX)
    jars = Path(spec.origin).parent / "jars"
    if not jars.is_dir():
        raise VersionUnsupported(
            f"The installed PySpark has no Spark in it: there is no folder {jars}.",
            why="The client-only package of PySpark cannot run a query on this machine.",
            fix=_FIX,
        )
    return jars


def ivy_jar() -> Path:
    """Return the jar of the Ivy resolver that Spark itself uses.

    Raises:
        VersionUnsupported: The installed PySpark has none.
    """
    folder = pyspark_jars_dir()
    found = sorted(folder.glob("ivy-*.jar"))
    if not found:
        raise VersionUnsupported(f"The installed PySpark is incomplete: {folder} has no Ivy jar.", fix=_FIX)
    return found[-1]
