import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .source import name_of, source_files, tree_of

MOST_LINES = 500
MOST_FUNCTION_LINES = 70

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, Function))


def lines_without_docstring(function: Function) -> int:
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is None:
        return total
    return total - ((first.end_lineno or first.lineno) - first.lineno + 1)


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_a_file_is_about_one_thing(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    long = {
        each.name: size for each in functions(path) if (size := lines_without_docstring(each)) > MOST_FUNCTION_LINES
    }
    assert not long


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_a_function_says_what_it_returns(path: Path) -> None:
    assert not [f"{each.name}, line {each.lineno}" for each in functions(path) if each.returns is None]


def test_a_docstring_does_not_count() -> None:
    code = 'def f():\n    """One\n\n    two.\n    """\n    return 1\n'
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_without_docstring(function) == 2
