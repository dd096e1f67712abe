import inspect
import re

from tailrace import errors
from tailrace.errors import TailraceError

CLASSES = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, TailraceError)]
BULLET_DEPTH = {"*": 0, "x": 1, "+": 2}


def drawn_tree() -> dict[str, str | None]:
    """Each class in the tree of the module's docstring, with the class that it is drawn below."""
    above: list[str] = []
    drawn: dict[str, str | None] = {}
    for bullet, name in re.findall(r"([*x+]) ([A-Z]\w+)", errors.__doc__ or ""):
        depth = BULLET_DEPTH[bullet]
        assert name not in drawn, f"{name} is drawn twice"
        drawn[name] = above[depth - 1] if depth else None
        above[depth:] = [name]
    return drawn


def test_the_docstring_shows_the_class_tree() -> None:
    real = {each.__name__: each.__base__.__name__ for each in CLASSES if each is not TailraceError}
    assert drawn_tree() == real | {"TailraceError": None}


def test_codes_are_unique() -> None:
    codes = [each.code for each in CLASSES]
    assert len(set(codes)) == len(codes)


def test_codes_follow_the_class_names() -> None:
    # vars: not inherited by accident.
    codes = {kind.__name__: vars(kind).get("code") for kind in CLASSES}
    assert codes == {name: re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() for name in codes}


def test_exit_codes_are_documented() -> None:
    assert [kind.__name__ for kind in CLASSES if kind.exit_code not in {1, 2}] == []


def test_class_docstrings_start_with_one_sentence() -> None:
    summaries = {kind.__name__: (vars(kind)["__doc__"] or "").split("\n\n")[0] for kind in CLASSES}
    assert [name for name, text in summaries.items() if not re.fullmatch(r"[A-Z][^.\n]*\.", text)] == []
