import inspect
import re

import pytest

from tailrace import errors
from tailrace.errors import TailraceError

CLASSES = [found for found in vars(errors).values() if inspect.isclass(found) and issubclass(found, TailraceError)]
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


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    real = {found.__name__: found.__base__.__name__ for found in CLASSES if found is not TailraceError}
    assert drawn_tree() == real | {"TailraceError": None}


def test_codes_are_unique() -> None:
    codes = [found.code for found in CLASSES]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", CLASSES)
def test_each_code_is_the_class_name_as_a_log_search_writes_it(kind: type[TailraceError]) -> None:
    assert kind.code == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()
    assert "code" in vars(kind), "not inherited by accident"


@pytest.mark.parametrize("kind", CLASSES)
def test_each_exit_code_is_a_documented_one(kind: type[TailraceError]) -> None:
    assert kind.exit_code in {1, 2}


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_says_in_one_sentence_what_happened(kind: type[TailraceError]) -> None:
    summary = (vars(kind)["__doc__"] or "").split("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^.\n]*\.", summary), summary
