"""Finding the pipeline that ``FILE``, ``FILE:NAME`` or ``MODULE:NAME`` means."""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pyspark import cloudpickle

from tailrace.errors import PipelineNotFound, UserCodeFailed
from tailrace.pipeline import Pipeline
from tailrace.runtime.usercode import user_code
from tailrace.spark_session import unlent_session

T = TypeVar("T")
_NEEDS_SPARK = "SESSION_OR_CONTEXT_NOT_EXISTS"


def load_pipeline(reference: str) -> Pipeline:
    """Import the file or module and return the pipeline in it.

    Args:
        reference: ``file.py``, ``file.py:name`` or ``module:name``.

    Raises:
        PipelineNotFound: There is no such file, or not exactly one such pipeline in it.
        UserCodeFailed: The file itself raised an exception.
    """
    place, name = _split(reference)
    module = _import_file(Path(place)) if place.endswith(".py") or "/" in place else _import_module(place)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        return _by_name(found, module, name, place)
    distinct = list({id(pipeline): pipeline for pipeline in found.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        raise PipelineNotFound(
            f"{place} holds no pipeline",
            why="none of its module-level names is a tailrace.Pipeline",
            fix="assign one: pipeline = tr.Pipeline(name=..., source=..., transform=..., sink=...)",
        )
    raise PipelineNotFound(
        f"{place} holds {len(distinct)} pipelines: {', '.join(found)}",
        fix=f"say which: {place}:{next(iter(found))}",
    )


def _split(reference: str) -> tuple[str, str]:
    """The file or module, and the name in it, if one is given."""
    place, colon, name = reference.rpartition(":")
    return (place, name) if colon and "/" not in name and not name.endswith(".py") else (reference, "")


def _by_name(found: dict[str, Pipeline], module: ModuleType, name: str, place: str) -> Pipeline:
    if name in found:
        return found[name]
    if hasattr(module, name):
        raise PipelineNotFound(
            f"{name} in {place} is a {type(getattr(module, name)).__name__}, not a Pipeline",
            fix=f"pipelines there: {', '.join(found) or 'none'}",
        )
    raise PipelineNotFound(f"{place} has no name {name!r}", fix=f"pipelines there: {', '.join(found) or 'none'}")


def _import_file(path: Path) -> ModuleType:
    """Run a Python file as a module, with its folder importable, as Python itself does for a script."""
    if not path.is_file():
        raise PipelineNotFound(
            f"there is no file {path}",
            fix="give the path of a Python file that defines a pipeline, or module:name",
        )
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineNotFound(
            f"{path} is no Python file", fix="give a .py file that defines a pipeline, or module:name"
        )
    module = importlib.util.module_from_spec(spec)
    # Registered under its name first, as Python does it: what it imports may import it.
    sys.modules[path.stem] = module
    execute = functools.partial(spec.loader.exec_module, module)
    _run_users(f"the file {path}", execute)
    _send_with_functions(folder)
    return module


def _run_users(what: str, code: Callable[[], T]) -> T:
    """Run code of the user's, and again with a Spark where it needs one."""
    try:
        with user_code(what):
            return code()
    except UserCodeFailed as failed:
        if _NEEDS_SPARK not in (failed.detail or ""):
            raise
    # PySpark lets Spark read a type that is written as text, as in @udf("double").
    unlent_session()
    with user_code(what):
        return code()


def _send_with_functions(folder: str) -> None:
    """Let Python functions take along what they use of the modules in a folder: workers cannot import those."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).parent == Path(folder):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _import_module(name: str) -> ModuleType:
    """Import a module by name, the current folder included."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    missing = PipelineNotFound(
        f"there is no module {name!r}",
        fix="give a file (fraud.py), or a module that Python can import (jobs.fraud:pipeline)",
    )
    if not all(part.isidentifier() for part in name.split(".")):
        raise missing

    def imported() -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as absent:
            # Only where it is the module itself, or a package it is in; what it imports is the user's affair.
            if absent.name is not None and (name == absent.name or name.startswith(absent.name + ".")):
                raise missing from None
            raise

    return _run_users(f"the module {name}", imported)
