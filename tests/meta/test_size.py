import ast
from collections.abc import Iterator
from pathlib import Path

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


def test_files_are_short() -> None:
    sizes = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    offenders = [f"{name}: {lines} lines" for name, lines in sizes.items() if lines > MOST_LINES]
    assert not offenders, "\n".join(offenders)


def test_functions_fit_on_a_screen() -> None:
    offenders = [
        f"{name_of(path)}: {each.name}, {lines_without_docstring(each)} lines"
        for path in source_files()
        for each in functions(path)
        if lines_without_docstring(each) > MOST_FUNCTION_LINES
    ]
    assert not offenders, "\n".join(offenders)


def test_functions_declare_what_they_return() -> None:
    offenders = [
        f"{name_of(path)}: {each.name}, line {each.lineno}"
        for path in source_files()
        for each in functions(path)
        if each.returns is None
    ]
    assert not offenders, "\n".join(offenders)


def test_docstring_lines_do_not_count() -> None:
    code = 'def f():\n    """One\n\n    two.\n    """\n    return 1\n'
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    assert lines_without_docstring(function) == 2
