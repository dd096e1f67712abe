from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.types import LongType, StructType

from tailrace.worker.series import verification
from tailrace.worker.short_ways import Settled, with_replaced

DECLARED = StructType().add("id", LongType()).add("score", LongType())


def verify(frame: pd.DataFrame, verifier: Any) -> None:
    verifier(frame, DECLARED, assign_cols_by_name=True, truncate_return_schema=True)


class TestVerification:
    def test_frames_with_the_declared_columns_pass_however_often(self) -> None:
        (verifier,) = verification().values()
        for _ in range(3):
            verify(pd.DataFrame({"id": [1], "score": [2]}), verifier)
            verify(pd.DataFrame({"score": [2], "id": [1]}), verifier)

    def test_one_without_is_refused_each_time_also_after_one_that_passed(self) -> None:
        (verifier,) = verification().values()
        wrong = pd.DataFrame({"id": [1], "scored": [2]})
        for _ in range(2):
            verify(pd.DataFrame({"id": [1], "score": [2]}), verifier)
            with pytest.raises(PySparkRuntimeError, match="scored"):
                verify(wrong, verifier)
            with pytest.raises(PySparkRuntimeError, match="scored"):
                verify(wrong, verifier)


class Conf:
    """One like Spark's: properties that look it up, and a method."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def timezone(self) -> str:
        self.reads += 1
        return "UTC"

    def get(self, key: str) -> str:
        return key.upper()


def made_with(runner_conf: Any) -> Any:
    """As Spark's worker makes its functions."""

    def func(what: str) -> str:
        def inner() -> str:
            return str(runner_conf.timezone)

        return " ".join([str(what), inner(), runner_conf.timezone, runner_conf.get("more")])

    return func


class TestSettled:
    def test_it_is_read_once_and_answers_like_the_other(self) -> None:
        conf = Conf()
        settled = Settled(conf)
        assert (settled.timezone, settled.timezone, settled.get("a")) == ("UTC", "UTC", "A")
        assert conf.reads == 1

    def test_a_copied_function_has_one(self) -> None:
        conf = Conf()
        copied = with_replaced(made_with(conf), {"str": lambda what: f"<{what}>"})
        assert copied is not None
        assert [copied("one"), copied("two")] == ["<one> <UTC> UTC MORE", "<two> <UTC> UTC MORE"]
        assert conf.reads == 1
