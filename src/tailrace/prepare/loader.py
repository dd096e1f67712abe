"""Load the pipeline that ``FILE``, ``FILE:NAME`` or ``MODULE:NAME`` names."""

import contextlib
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from tailrace.errors import DefinitionError, PipelineNotFound
from tailrace.frames.user_code import is_users, user_code
from tailrace.pipeline import Pipeline
from tailrace.spark_session import spark_on_demand

_ASSIGN = "assign one: pipeline = tr.Pipeline(name=..., source=..., transform=..., sink=...)"


def load_pipeline(reference: str) -> Pipeline:
    """Import the file or module and return the pipeline in it.

    The code runs once. If the load fails, ``sys.path`` and ``sys.modules`` are as before.

    Args:
        reference: ``file.py``, ``file.py:name`` or ``module:name``.

    Raises:
        PipelineNotFound: There is no such file, or not exactly one such pipeline in it.
        DefinitionError: The file has the name of a standard-library module.
        UserCodeFailed: The file itself raised an exception.
    """
    place, name = _split(reference)
    if not place.endswith(".py") and "/" not in place:
        with _restored_on_failure(Path.cwd()):
            return _pipeline_in(_import_module(place), name, place)
    folder = Path(place).resolve().parent
    with _restored_on_failure(folder):
        pipeline = _pipeline_in(_import_file(Path(place)), name, place)
    _send_with_functions(folder)
    return pipeline


@contextlib.contextmanager
def _restored_on_failure(folder: Path) -> Iterator[None]:
    """After a failed load, restore ``sys.path`` and remove the user's modules in a folder from ``sys.modules``.

    Libraries that it imported stay: many cannot be imported twice.
    """
    path, modules = list(sys.path), dict(sys.modules)
    try:
        yield
    except BaseException:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if modules.get(name) is not module and _is_users(module, folder):
                del sys.modules[name]
        for name, module in modules.items():
            sys.modules.setdefault(name, module)
        raise


def _is_users(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and is_users(file) and Path(file).resolve().is_relative_to(folder)


def _pipeline_in(module: ModuleType, name: str, place: str) -> Pipeline:
    """Return the named pipeline of a module, or its only one.

    Raises:
        PipelineNotFound: There is not exactly one such pipeline in it.
    """
    pipelines = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        return _by_name(pipelines, module, name, place)
    distinct = list({id(pipeline): pipeline for pipeline in pipelines.values()}.values())
    if len(distinct) == 1:
        return distinct[0]
    if not distinct:
        raise PipelineNotFound(
            f"{place} defines no pipeline",
            why="none of its module-level names is a tailrace.Pipeline",
            fix=_ASSIGN,
        )
    raise PipelineNotFound(
        f"{place} defines {len(distinct)} pipelines: {', '.join(pipelines)}",
        fix=f"name one: {place}:{next(iter(pipelines))}",
    )


def _split(reference: str) -> tuple[str, str]:
    """Return the file or module, and the name in it; the name may be empty."""
    place, colon, name = reference.rpartition(":")
    return (place, name) if colon and "/" not in name and not name.endswith(".py") else (reference, "")


def _by_name(pipelines: dict[str, Pipeline], module: ModuleType, name: str, place: str) -> Pipeline:
    if name in pipelines:
        return pipelines[name]
    fix = f"use {' or '.join(f'{place}:{each}' for each in pipelines)}" if pipelines else _ASSIGN
    if hasattr(module, name):
        raise PipelineNotFound(
            f"{name} in {place} is a {type(getattr(module, name)).__name__}, not a Pipeline",
            fix=fix,
        )
    raise PipelineNotFound(f"{place} has no name {name!r}", fix=fix)


def _import_file(path: Path) -> ModuleType:
    """Run a Python file as a module, with its folder importable, as Python itself does for a script."""
    if not path.is_file():
        raise PipelineNotFound(
            f"there is no file {path}",
            fix="give the path of a Python file that defines a pipeline, or module:name",
        )
    _require_no_stdlib_name(path)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(_free_name(path), path)
    if spec is None or spec.loader is None:
        raise PipelineNotFound(
            f"{path} is not a Python file", fix="give a .py file that defines a pipeline, or module:name"
        )
    module = importlib.util.module_from_spec(spec)
    # Registered first, like Python does: what the file imports may import the file.
    sys.modules[spec.name] = module
    with spark_on_demand(), user_code(f"the file {path}"):
        spec.loader.exec_module(module)
    return module


def _require_no_stdlib_name(path: Path) -> None:
    # The file's folder comes before the standard library in the workers' PYTHONPATH and in sys.path here.
    if path.suffix == ".py" and path.stem in sys.stdlib_module_names:
        raise DefinitionError(
            f"{path} has the name of Python's module {path.stem!r}",
            why=f"Spark's Python workers would import this file instead of Python's own {path.stem!r}",
            fix=f"rename the file: mv {path} {path.with_stem(f'{path.stem}_pipeline')}",
        )


def _free_name(path: Path) -> str:
    """Return the file's name as a module name; with a number if another module has that name."""
    stem = path.stem.replace(".", "_")  # a dot would make it a module of a package
    names = itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(2)))
    return next(name for name in names if _is_free(name, path.resolve()))


def _is_free(name: str, path: Path) -> bool:
    if name == "__main__":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return name not in sys.modules or (file is not None and Path(file).resolve() == path)


def _send_with_functions(folder: Path) -> None:
    """Pickle the modules in a folder by value with the functions that use them: workers cannot import them."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).resolve().parent == folder and name == module.__name__:
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

    with spark_on_demand(), user_code(f"the module {name}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as absent:
            # Only for the module itself or its package; an import inside the module is the user's code.
            if absent.name is not None and (name == absent.name or name.startswith(absent.name + ".")):
                raise missing from None
            raise
