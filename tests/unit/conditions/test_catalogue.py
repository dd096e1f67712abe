"""The catalogue as a whole: entries are complete, and no sentence is written twice."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import tailrace
from tailrace.conditions import spark
from tailrace.conditions.catalogue import CATALOGUE, find_condition
from tailrace.conditions.condition import Condition
from tailrace.conditions.failures import values_of
from tailrace.preflight.checks import ALL

PACKAGE = Path(tailrace.__file__).parent
PACKAGES = ("conditions", "preflight", "prepare", "running", "frames", "engine", "plan")
WRITTEN_ONCE = [
    *(path for part in PACKAGES for path in PACKAGE.glob(f"{part}/**/*.py")),
    PACKAGE / "kafka" / "failures.py",
]
SENTENCE_WORDS = 5


def names_in(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


@pytest.mark.parametrize("condition", CATALOGUE, ids=lambda condition: condition.what)
def test_every_condition_is_recognised_and_has_what_its_templates_need(condition: Condition) -> None:
    assert condition.pattern or condition.spark
    assert condition.what
    assert condition.fix
    pattern = re.compile(condition.pattern or "|".join(map(re.escape, condition.spark)))
    given = {*values_of("q", re.compile("").search("")), *condition.defaults, *pattern.groupindex}  # type: ignore[arg-type]
    missing = {*names_in(condition.what), *names_in(condition.why), *names_in(condition.fix)} - given
    assert not missing or condition.details is not None, missing


def test_every_condition_can_match_before_the_one_for_everything() -> None:
    assert CATALOGUE[-1] is spark.UNKNOWN
    assert [condition for condition in CATALOGUE if condition.search("")] == [spark.UNKNOWN]


@pytest.mark.parametrize("name", sorted({name for condition in CATALOGUE for name in condition.spark}))
def test_spark_names_find_a_condition(name: str) -> None:
    condition, _ = find_condition(f"[{name}] The output mode X. The input stream a.X. The sink(s): a.X is not there.")
    assert name in condition.spark


def test_a_check_that_shares_a_condition_shares_its_code() -> None:
    codes = {each.CODE for each in ALL}
    shared = {condition.code for condition in CATALOGUE if condition.code != condition.error.code}
    assert shared <= codes


def sentences(path: Path) -> Iterator[str]:
    """Yield every string of several words in a file, without docstrings and patterns."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value.strip()
            if len(re.findall(r"[A-Za-z]{2,}", text)) >= SENTENCE_WORDS and "(?" not in text:
                yield text


def test_every_sentence_is_written_once() -> None:
    counts = Counter(text for path in WRITTEN_ONCE for text in sentences(path))
    assert [text for text, count in counts.items() if count > 1] == []
