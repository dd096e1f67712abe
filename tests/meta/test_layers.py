"""The direction of imports: upper may import lower, never sideways, never up."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .source import PACKAGE, name_of, source_files, tree_of

# From the top. Modules that share a line stand beside each other and know nothing of each other.
LAYERS = (
    {"cli"},
    {"demo", "doctor", "project", "testing"},
    {"bench"},
    {"report"},
    {"runtime"},
    {"preflight"},
    {"functions"},
    {"plan", "checkpoint"},
    {"engine"},
    {"spark_session"},
    {"traffic"},
    {"kafka"},
    {"toolchain"},
    {"pipeline", "tuning", "latency"},
    {"errors", "version"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
ROOT_RANK = RANK["runtime"]
"""The package itself offers what `runtime` offers, so that only what is above `runtime` may import it."""

JVM_ATTRIBUTES = {"_jvm", "_jsparkSession", "_jdf", "_jwrite", "_jsq", "_jsc", "_jconf", "_jc", "_gateway"}
JVM_DOORS = {"engine", "spark_session"}
JVM_MAY_BE_GONE = {"runtime/running.py", "runtime/flow_watch.py"}
EFFECTS = {
    "asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "shutil", "socket",
    "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports anywhere: in functions, for type checkers, or by its name in a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                # `from tailrace import engine` imports a module of it, `from tailrace import Pipeline` the package.
                inside = [alias.name for alias in names if module == "tailrace" and alias.name in RANK]
                yield from (f"tailrace.{name}" for name in inside)
                if len(inside) < len(names):
                    yield module
            case ast.ImportFrom(level=level) if level:
                yield "." * level
            case ast.Constant(value=str(text)) if re.fullmatch(r"tailrace(\.[a-z_]+)+", text):
                yield text


def layer_of(path: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def top_levels() -> set[str]:
    return {layer_of(path) for path in source_files()} - {"__init__", "__main__"}


def layers_imported(path: Path) -> set[str]:
    parts = (name.split(".") for name in imported_modules(tree_of(path)))
    return {part[1] for part in parts if part[0] == "tailrace" and len(part) > 1 and part[1] in RANK}


def test_every_module_is_in_a_layer_and_every_layer_exists() -> None:
    assert top_levels() == set(RANK)


@pytest.mark.parametrize("path", [path for path in source_files() if layer_of(path) in RANK], ids=name_of)
def test_a_module_imports_only_what_is_below_it(path: Path) -> None:
    own = layer_of(path)
    wrong = {other for other in layers_imported(path) - {own} if RANK[other] <= RANK[own]}
    assert not wrong, f"{name_of(path)} ({own}) imports {sorted(wrong)}, which is not below it"


@pytest.mark.parametrize("path", [path for path in source_files() if layer_of(path) in RANK], ids=name_of)
def test_only_what_is_above_the_runtime_imports_the_package_itself(path: Path) -> None:
    assert "tailrace" not in set(imported_modules(tree_of(path))) or RANK[layer_of(path)] < ROOT_RANK


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_imports_are_absolute(path: Path) -> None:
    assert not [name for name in imported_modules(tree_of(path)) if name.startswith(".")]


def test_the_package_itself_imports_only_definitions_and_names_the_rest_lazily() -> None:
    tree = tree_of(PACKAGE / "__init__.py")
    at_once = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module is not None}
    assert {name for name in at_once if name.startswith("tailrace")} == {
        "tailrace.errors",
        "tailrace.pipeline",
        "tailrace.version",
    }
    assert layers_imported(PACKAGE / "__init__.py") == {"errors", "pipeline", "runtime", "spark_session", "version"}


def test_python_m_tailrace_is_the_command_line_and_nothing_else() -> None:
    assert set(imported_modules(tree_of(PACKAGE / "__main__.py"))) == {"tailrace.cli"}


@pytest.mark.parametrize("path", [path for path in source_files() if layer_of(path) not in JVM_DOORS], ids=name_of)
def test_only_two_modules_touch_the_jvm(path: Path) -> None:
    nodes = list(ast.walk(tree_of(path)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert not (attributes | words) & JVM_ATTRIBUTES
    py4j = {name for name in imported_modules(tree_of(path)) if name.split(".")[0] == "py4j"}
    # A running query may find the JVM gone; py4j's own error is the only word for it.
    assert py4j <= ({"py4j.protocol"} if name_of(path) in JVM_MAY_BE_GONE else set())


@pytest.mark.parametrize("name", sorted(JVM_MAY_BE_GONE))
def test_the_runtime_takes_nothing_but_an_error_from_py4j(name: str) -> None:
    imports = (node for node in ast.walk(tree_of(PACKAGE / name)) if isinstance(node, ast.ImportFrom))
    assert [alias.name for node in imports if node.module == "py4j.protocol" for alias in node.names] == ["Py4JError"]


@pytest.mark.parametrize("path", [path for path in source_files() if layer_of(path) == "latency"], ids=name_of)
def test_latency_is_pure(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported_modules(tree_of(path))} & EFFECTS
    called = {
        node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}


def test_the_walk_sees_imports_wherever_they_hide() -> None:
    tree = ast.parse(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from tailrace.cli import app\n"
        "def late():\n    import tailrace.demo.run\n    from tailrace import engine\n"
        "LAZY = 'tailrace.runtime.start'\n"
        "from . import sibling\n"
    )
    assert {"tailrace.cli", "tailrace.demo.run", "tailrace.engine", "tailrace.runtime.start", "."} <= set(
        imported_modules(tree)
    )
