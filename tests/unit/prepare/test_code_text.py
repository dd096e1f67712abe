"""Functions as text: equal in every process, different where the code or a value differs."""

import dataclasses
import enum
import functools
import itertools
import logging
import math
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import DoubleType

from tailrace.prepare.code_text import Unstable, code_text

LIMITS = """
import functools, logging, math, re
import {helpers} as helpers
from dataclasses import dataclass, field
from enum import Enum

LIMIT = 10
NAMES = {{"alice", "bob", "carol"}}
WORD = re.compile("a+")
log = logging.getLogger(__name__)
unused = object()

class Level(Enum):
    LOW = 1
    HIGH = 2

@dataclass
class Rule:
    limit: int = 3
    tags: list = field(default_factory=list)

    def matches(self, amount):
        return amount > self.limit

RULE = Rule(5)

@functools.cache
def factor():
    return 2.5

def check(amount, name="x", *, level=Level.HIGH):
    log.info("checking")
    if name in {{"alice", "bob", "eve"}} or WORD.match(name):
        return RULE.matches(amount)
    return [math.floor(each * factor()) for each in (amount, LIMIT)] + helpers.extra(amount)
"""
HELPERS = """
BONUS = 1
OTHER = object()

def extra(amount):
    return [amount + BONUS]

def not_used():
    return OTHER
"""


NUMBERS = itertools.count()


def loaded(folder: Path, limits: str = LIMITS, helpers: str = HELPERS) -> Any:
    """Return the function `check` of a module of a name of its own."""
    number = next(NUMBERS)
    (folder / f"helpers_{number}.py").write_text(helpers)
    (folder / f"limits_{number}.py").write_text(limits.format(helpers=f"helpers_{number}"))
    sys.path.insert(0, str(folder))
    try:
        __import__(f"limits_{number}")
    finally:
        sys.path.remove(str(folder))
    return sys.modules[f"limits_{number}"].check


def test_the_same_code_has_the_same_text_wherever_it_is(tmp_path: Path) -> None:
    moved = LIMITS.replace("LIMIT = 10", "\n\nLIMIT = 10  # a comment").replace("unused = object()", "")
    assert code_text(loaded(tmp_path)) == code_text(loaded(tmp_path, moved))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 10", "LIMIT = 11"),
        ('"carol"}}', '"dave"}}'),
        ('"eve"}}', '"mallory"}}'),
        ('re.compile("a+")', 're.compile("b+")'),
        ("return 2.5", "return 2.6"),
        ('name="x"', 'name="y"'),
        ("Level.HIGH", "Level.LOW"),
        ("amount > self.limit", "amount >= self.limit"),
        ("Rule(5)", "Rule(6)"),
        ("each * factor()", "each / factor()"),
        ("math.floor", "math.ceil"),
        ("BONUS = 1", "BONUS = 2"),
        ("[amount + BONUS]", "[amount - BONUS]"),
    ],
)
def test_what_a_function_uses_is_part_of_its_text(tmp_path: Path, before: str, after: str) -> None:
    known = code_text(loaded(tmp_path))
    is_used = not before.startswith('"carol')
    changed = loaded(tmp_path, LIMITS.replace(before, after), HELPERS.replace(before, after))
    assert (code_text(changed) != known) is is_used


PROGRAM = """
import sys, pickle
sys.path.insert(0, sys.argv[1])
from pyspark import cloudpickle
import limits_N as limits
from tailrace.prepare.code_text import code_text
from hashlib import sha256
if sys.argv[2] == "by value":
    cloudpickle.register_pickle_by_value(limits)
    cloudpickle.register_pickle_by_value(sys.modules["helpers_N"])
function = cloudpickle.loads(cloudpickle.dumps((limits.check, {"b", "a", ("c", frozenset("xyz"))})))
print(sha256(code_text(function).encode()).hexdigest())
"""


def test_two_processes_agree_whatever_the_seed_of_their_hashes(tmp_path: Path) -> None:
    program = PROGRAM.replace("_N", loaded(tmp_path).__module__.removeprefix("limits"))
    for how in ("by name", "by value"):
        printed = set()
        for seed in ("0", "1", "4711"):
            done = subprocess.run(
                [sys.executable, "-c", program, str(tmp_path), how],
                env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
            )  # fmt: skip
            printed.add(done.stdout)
        assert len(printed) == 1, how


def adding(amount: object) -> Callable[[Any], Any]:
    return lambda value: value + amount


def test_closures_count() -> None:
    assert code_text(adding(1)) == code_text(adding(1))
    assert code_text(adding(1)) != code_text(adding(2))
    assert code_text(adding(1)) != code_text(adding(True))
    assert code_text(adding(1.0)) != code_text(adding(1))
    assert code_text(adding([1, 2])) != code_text(adding((1, 2)))
    assert code_text(adding({"a": 1, "b": 2})) == code_text(adding({"a": 1, "b": 2}))
    assert code_text(adding({1, 2})) == code_text(adding({2, 1}))


def test_a_pickled_function_has_the_text_of_the_original() -> None:
    first, second = (cloudpickle.loads(cloudpickle.dumps((adding({"a": [n]}), DoubleType()))) for n in (1, 2))
    assert code_text(first) == code_text((adding({"a": [1]}), DoubleType()))
    assert code_text(first) != code_text(second)


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Config:
    rate: float
    color: Color = Color.RED


class Slotted:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Length(int):
    pass


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Config(1.0), Config(2.0)),
        (Slotted(1), Slotted(2)),
        (functools.partial(max, 1), functools.partial(max, 2)),
        (Config(1.0).__eq__, Config(2.0).__eq__),
        (re.compile("x" * 300 + "1"), re.compile("x" * 300 + "2")),
        (math.floor, math.ceil),
        ("abc".join, "abd".join),
        (str.upper, str.lower),
        (types.MappingProxyType({1: 2}), types.MappingProxyType({1: 3})),
        (math, re),
    ],
)  # fmt: skip
def test_objects_that_functions_often_hold(one: object, other: object) -> None:
    assert code_text(adding(one)) == code_text(adding(one))
    assert code_text(adding(one)) != code_text(adding(other))


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (threading.Lock(), "lock"),
        (iter([1]), "list_iterator"),
        (Length(3), "Length"),
    ],
)
def test_a_value_without_a_stable_text_is_named_with_its_function(value: object, named: str) -> None:
    with pytest.raises(Unstable, match=rf"{named} in <lambda>"):
        code_text(adding(value))


def test_loggers_and_classes_of_libraries_have_a_text() -> None:
    assert code_text(adding(logging.getLogger("a"))) == code_text(adding(logging.getLogger("b")))
    assert code_text(adding(subprocess.Popen))


def recursive(number: int) -> int:
    return number and other(number - 1)


def other(number: int) -> int:
    return recursive(number)


def test_recursion_ends() -> None:
    assert code_text(recursive)
    itself: list[object] = []
    itself.append(itself)
    assert code_text(adding(itself))


IMPORTING = """
def check(amount):
    from lazily.inner import rule
    return rule.applies(amount)
"""


def test_what_a_function_imports_when_it_is_called_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "lazily" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "lazily" / "__init__.py").touch()
    (inner / "__init__.py").touch()
    (inner / "rule.py").write_text("import math, farther\n\ndef applies(amount):\n    return farther.limit(amount)\n")
    (tmp_path / "farther.py").write_text("def limit(amount):\n    return amount > 1\n")
    check = loaded(tmp_path, IMPORTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = [code_text(check)]
    assert "lazily" not in sys.modules
    (tmp_path / "farther.py").write_text("def limit(amount):\n    return amount > 2\n")
    texts.append(code_text(check))
    assert check(3)
    texts.append(code_text(check))
    (inner / "rule.py").write_text("def applies(amount):\n    return False\n")
    assert len(set(texts)) == 3, "once it is loaded, what is loaded counts"
    assert code_text(check) == texts[-1]
