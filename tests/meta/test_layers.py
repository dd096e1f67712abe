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
    {"chaos", "demo", "doctor", "project", "testing"},
    {"measure"},
    {"report"},
    {"dead_letters"},
    {"running"},
    {"prepare"},
    {"preflight"},
    {"frames"},
    {"checkpoint"},
    {"engine"},
    {"spark_session"},
    {"spark_jvm"},
    {"conditions"},
    {"cluster", "plan"},
    {"kafka"},
    {"toolchain"},
    {"pipeline", "tuning", "worker"},
    {"errors", "version"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
ROOT_RANK = RANK["running"]
"""The package itself offers what `running` offers, so that only what is above `running` may import it."""

JVM_ATTRIBUTES = {"_jvm", "_jsparkSession", "_jdf", "_jwrite", "_jsq", "_jsc", "_jconf", "_jc", "_gateway"}
JVM_DOORS = {"engine", "spark_jvm", "spark_session"}
JVM_MAY_BE_GONE = {
    f"running/{name}.py" for name in ("start", "query", "flow_watch", "broker_watch", "partition_watch", "topic_watch")
}
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


def layered_files() -> list[Path]:
    files = [path for path in source_files() if layer_of(path) in RANK]
    assert files
    return files


def layers_imported(path: Path) -> set[str]:
    parts = (name.split(".") for name in imported_modules(tree_of(path)))
    return {part[1] for part in parts if part[0] == "tailrace" and len(part) > 1 and part[1] in RANK}


def test_the_layers_are_the_modules() -> None:
    assert top_levels() == set(RANK)


def test_modules_import_only_lower_layers() -> None:
    offenders = [
        f"{name_of(path)} imports {other}"
        for path in layered_files()
        for other in sorted(layers_imported(path) - {layer_of(path)})
        if RANK[other] <= RANK[layer_of(path)]
    ]
    assert not offenders, "\n".join(offenders)


def test_only_layers_above_running_import_the_package() -> None:
    below = [path for path in layered_files() if RANK[layer_of(path)] >= ROOT_RANK]
    offenders = [name_of(path) for path in below if "tailrace" in set(imported_modules(tree_of(path)))]
    assert not offenders, "\n".join(offenders)


def test_imports_are_absolute() -> None:
    offenders = [
        name_of(path)
        for path in source_files()
        if any(name.startswith(".") for name in imported_modules(tree_of(path)))
    ]
    assert not offenders, "\n".join(offenders)


def test_the_package_loads_definitions_eagerly_and_the_rest_lazily() -> None:
    tree = tree_of(PACKAGE / "__init__.py")
    at_once = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module is not None}
    assert {name for name in at_once if name.startswith("tailrace")} == {
        "tailrace.errors",
        "tailrace.pipeline",
        "tailrace.version",
    }
    assert layers_imported(PACKAGE / "__init__.py") == {
        "errors",
        "pipeline",
        "prepare",
        "running",
        "spark_session",
        "version",
    }


def test_python_m_tailrace_is_only_the_command_line() -> None:
    assert set(imported_modules(tree_of(PACKAGE / "__main__.py"))) == {"tailrace.cli"}


def test_only_two_modules_touch_the_jvm() -> None:
    offenders = []
    for path in source_files():
        if layer_of(path) in JVM_DOORS:
            continue
        nodes = list(ast.walk(tree_of(path)))
        attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        py4j = {name for name in imported_modules(tree_of(path)) if name.split(".")[0] == "py4j"}
        # A running query may find the JVM gone; py4j's own error is the only word for it.
        allowed = {"py4j.protocol"} if name_of(path) in JVM_MAY_BE_GONE else set()
        used = ((attributes | words) & JVM_ATTRIBUTES) | (py4j - allowed)
        offenders += [f"{name_of(path)} uses {name}" for name in sorted(used)]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize("name", sorted(JVM_MAY_BE_GONE))
def test_running_imports_only_an_error_from_py4j(name: str) -> None:
    imports = (node for node in ast.walk(tree_of(PACKAGE / name)) if isinstance(node, ast.ImportFrom))
    assert [alias.name for node in imports if node.module == "py4j.protocol" for alias in node.names] == ["Py4JError"]


@pytest.mark.parametrize("name", ["latency.py", "schedule.py"])
def test_latency_arithmetic_is_pure(name: str) -> None:
    tree = tree_of(PACKAGE / "measure" / name)
    imported = {module.split(".")[0] for module in imported_modules(tree)}
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    used = (imported & EFFECTS) | (called & {"open", "print", "input", "exec", "eval", "__import__"})
    assert not used, sorted(used)


def test_checks_import_no_client_and_no_jvm() -> None:
    clients = {"confluent_kafka", "py4j", "pyspark"}
    doors = {f"tailrace.{name}" for name in JVM_DOORS}
    files = [path for path in source_files() if layer_of(path) in {"plan", "preflight"}]
    offenders = [
        f"{name_of(path)} imports {name}"
        for path in files
        for name in imported_modules(tree_of(path))
        if name.split(".")[0] in clients or ".".join(name.split(".")[:2]) in doors
    ]
    assert not offenders, "\n".join(offenders)


def reached_from(layer: str) -> set[Path]:
    """The files of a layer, those that they import, and so on."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in source_files()}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    reached: set[Path] = set()
    left = [path for path in source_files() if layer_of(path) == layer]
    while left:
        path = left.pop()
        reached.add(path)
        parts = [name.split(".") for name in imported_modules(tree_of(path))]
        # An import runs the packages around a module, too; the outermost one loads the rest lazily.
        names = {".".join(each[:length]) for each in parts for length in range(2, len(each) + 1)}
        left += {modules[name] for name in names if name in modules} - reached
    return reached


def test_checks_reach_no_client_and_no_jvm_through_other_modules() -> None:
    """Definitions name PySpark's types for type checkers; test_import_weight.py shows that nothing loads PySpark."""
    assert {layer_of(path) for path in reached_from("prepare")} >= JVM_DOORS
    offenders = [
        f"{name_of(path)} imports {name}"
        for path in reached_from("preflight")
        for name in imported_modules(tree_of(path))
        if name.split(".")[0] in {"confluent_kafka", "py4j"} or layer_of(path) in JVM_DOORS
    ]
    assert not offenders, "\n".join(offenders)


def test_every_form_of_import_is_detected() -> None:
    tree = ast.parse(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from tailrace.cli import app\n"
        "def late():\n    import tailrace.demo.run\n    from tailrace import engine\n"
        "LAZY = 'tailrace.running.start'\n"
        "from . import sibling\n"
    )
    assert {"tailrace.cli", "tailrace.demo.run", "tailrace.engine", "tailrace.running.start", "."} <= set(
        imported_modules(tree)
    )
