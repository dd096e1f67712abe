"""The catalogue as a whole: entries are complete, and no sentence is written twice."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
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
SENTENCE_WORDS = 5
SIMILAR = 0.85
MAY_BE_SIMILAR = {
    "use one or more of: {}": "followed by a different list each time",
    "{} cannot run in real time": "shared by all operations; the check names each",
    "pivot cannot run on a stream": "as for a sort: Spark has a rule for each operation",
    "except of two streams cannot run": "as for intersect: Spark has a rule for each operation",
    "mapInArrow with a barrier or a profile": "as for mapInPandas, another operation",
    "was not ready within {} s": "a broker and a cluster, with different errors",
    "the source {} cannot be read in real time": "as for a source option, another condition",
    "another process uses port {} on {}": "a broker and a cluster, with different errors",
    "cluster {} belongs to a running program and ends with it": "as for a broker, with another error",
    "tailrace cluster stop --name {}, then start it again; or choose another --name": "as for a broker",
    "Several clusters run side by side under different names.": "as for brokers",
    "Waiting for process {} to download Java ...": "as for the jars, another download",
    "run with --verbose to see its output": "of a cluster; another sentence of a broker",
    "not archived yet, so starts are slower": "with a fix; the other one has a reason instead",
    "{} could not be set up: {}": "a line of a report; the other one is an error",
    "measure a pipeline with one source": "of the benchmark; the other one is of a chaos run",
    "the test's private broker did not take all records": "the other one is about reading",
    "functions on rows at 10 events/s; start python-slow-batches at the same time": "a study beside another one",
}
"""Sentences that may resemble others, with the reason."""


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


def text_of(node: ast.AST) -> str:
    """Return a string, with ``{}`` for each value that it contains."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return re.sub(r"\{[a-z_]+(?:!r)?\}", "{}", text)


def sentences(path: Path) -> Iterator[str]:
    """Yield every string of several words in a file, without docstrings, patterns and markup."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    others = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    others |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        text = text_of(node).strip() if id(node) not in others else ""
        words = [word for word in text.split() if re.search(r"[A-Za-z]", word)]
        if len(words) >= SENTENCE_WORDS and "(?" not in text and not text.startswith("<"):
            yield text


def similar_pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each pair of similar texts; cheap bounds exclude most of the pairs."""
    ordered = sorted(texts, key=len)
    words = [Counter(text.split()) for text in ordered]
    for index, short in enumerate(ordered):
        matcher = SequenceMatcher(autojunk=False)
        matcher.set_seq2(short)
        for other in range(index + 1, len(ordered)):
            long = ordered[other]
            if 2 * len(short) < SIMILAR * (len(short) + len(long)):
                break
            if 2 * (words[index] & words[other]).total() < (words[index].total() + words[other].total()) / 2:
                continue
            matcher.set_seq1(long)
            if matcher.quick_ratio() >= SIMILAR and matcher.ratio() >= SIMILAR:
                yield short, long


def test_every_sentence_is_written_once() -> None:
    texts = [text for path in sorted(PACKAGE.rglob("*.py")) for text in sentences(path)]
    pairs = list(similar_pairs(texts))
    assert [pair for pair in pairs if not MAY_BE_SIMILAR.keys() & {*pair}] == []
    assert MAY_BE_SIMILAR.keys() <= {text for pair in pairs for text in pair}, "an exception that is not needed"


def test_reworded_sentences_are_similar() -> None:
    first = "continuing from its offsets would skip or repeat records of {}"
    second = "to continue from its offsets would skip or repeat records of {}"
    assert list(similar_pairs([first, "no Kafka broker responds at {}", second])) == [(first, second)]
