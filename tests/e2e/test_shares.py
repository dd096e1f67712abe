"""The order of tests for several workers: nothing is left out, and the long tests are dealt evenly."""

from pathlib import Path

import pytest
from shares import in_shares, measured, read_seconds

LONG = [f"tests/e2e/test_{name}.py::test_{number}" for name in "abcdef" for number in range(4)]
SHORT = [f"tests/unit/test_{name}.py::test_{number}" for name in "gh" for number in range(38)]
TAKE = {"a": 9.0, "b": 30.0, "c": 10.0, "d": 40.0, "e": 11.0, "f": 20.0}
SECONDS = {f"tests/e2e/test_{name}.py": seconds for name, seconds in TAKE.items()}
ALONE = "tests/e2e/test_d.py::test_3"


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("tests", [LONG + SHORT, LONG, SHORT, []], ids=["all", "long", "short", "none"])
def test_every_test_is_there_once(tests: list[str], workers: int) -> None:
    assert sorted(in_shares(tests, workers, SECONDS)) == sorted(tests)


def test_each_part_begins_with_as_many_seconds_of_long_tests() -> None:
    known = SECONDS | {ALONE: 33.0}
    ordered = in_shares(LONG + SHORT, 2, known)
    parts = ordered[:50], ordered[50:]
    seconds = []
    for part in parts:
        units = [test if test == ALONE else test.partition("::")[0] for test in part if test in LONG]
        seconds.append([known[unit] for unit in dict.fromkeys(units)])
    assert [sum(part) for part in seconds] == [pytest.approx(sum(known.values()) / 2, abs=10)] * 2
    assert [sorted(part, reverse=True) for part in seconds] == seconds, "the longest first"
    for part in parts:
        assert [test in LONG for test in part] == sorted((test in LONG for test in part), reverse=True)


def test_tests_of_a_file_stay_together_and_a_new_file_is_dealt_too() -> None:
    files = [test.partition("::")[0] for test in in_shares(LONG + SHORT, 3, {}) if test in LONG]
    assert files == sorted(files, key=files.index)
    assert len(set(files)) == 6


def test_what_a_report_says(tmp_path: Path) -> None:
    cases = [("tests.e2e.test_a", "test_b", 1), ("tests.e2e.test_a.TestC", "test_d[x.y]", 60)]
    cases += [("tests.e2e.test_a", "test_e", 2), ("tests.unit.test_f", "test_g", 9)]
    rows = "".join(f'<testcase classname="{where}" name="{name}" time="{time}"/>' for where, name, time in cases)
    (tmp_path / "times.xml").write_text(f"<testsuites><testsuite>{rows}</testsuite></testsuites>")
    assert measured(tmp_path / "times.xml") == {
        "tests/e2e/test_a.py": 3.0,
        "tests/e2e/test_a.py::TestC::test_d[x.y]": 60.0,
    }


def test_what_was_measured_is_of_files_that_are_there() -> None:
    root = Path(__file__).parents[2]
    assert not [unit for unit in read_seconds() if not (root / unit.partition("::")[0]).is_file()]
