"""Names that Python and the engine share: one definition in each language, and both are equal."""

import ast
import re

from tailrace.dead_letters.letter import REFUSED_RESULTS
from tailrace.engine import RECORD
from tailrace.frames import names
from tailrace.frames.names import Header
from tailrace.pipeline import HEADER_PREFIX, RESERVED_PREFIX

from .source import ROOT, name_of, source_files, tree_of

_SCALA = ROOT / "jvm"
_VALUE = re.compile(r'^  val (\w+) = "([^"]*)"$', re.MULTILINE)
_SHARED = re.compile(rf'"(?:{re.escape(HEADER_PREFIX)}[a-z_]+|{RESERVED_PREFIX}\w*)"')
_COLUMNS = ("TOPIC", "PARTITION", "OFFSET", "EVENT_TIME", "SOURCE", "RAW")


def values_in(file: str) -> dict[str, str]:
    """The public texts of a Scala object, by their names as Python writes them."""
    values = _VALUE.findall((_SCALA / file).read_text(encoding="utf-8"))
    assert values, f"no values in {file}"
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper(): text for name, text in values}


def test_the_headers_are_equal() -> None:
    assert values_in("sql/HeaderNames.scala") == {header.name: header.value for header in Header}


def test_the_hidden_columns_are_equal() -> None:
    assert values_in("sql/Lineage.scala") == {name: getattr(names, name) for name in _COLUMNS}


def test_the_column_of_the_parsed_record_is_equal() -> None:
    assert values_in("sql/Records.scala") == {"RECORD": RECORD}


def test_the_reasons_for_refused_results_are_equal() -> None:
    assert set(values_in("kafka/KafkaSink.scala").values()) == REFUSED_RESULTS


def test_the_engine_defines_each_name_once() -> None:
    defined = [
        text for path in sorted(_SCALA.rglob("*.scala")) for text in _SHARED.findall(path.read_text(encoding="utf-8"))
    ]
    expected = [*Header, RECORD, *(getattr(names, name) for name in _COLUMNS)]
    assert sorted(defined) == sorted(f'"{name}"' for name in expected)


def test_python_writes_the_prefixes_only_where_they_are_defined() -> None:
    offenders = [
        f"{name_of(path)}:{node.lineno}: {node.value!r}"
        for path in source_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value in {*Header, HEADER_PREFIX} or node.value.startswith(RESERVED_PREFIX))
    ]
    expected = {f"pipeline.py: {HEADER_PREFIX!r}", f"pipeline.py: {RESERVED_PREFIX!r}"}
    assert {re.sub(r":\d+:", ":", offender) for offender in offenders} == expected, offenders
