from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.types import LongType, StructType

from tailrace.worker.fast_path import CachedConf, with_names_replaced
from tailrace.worker.pandas_conversion import cached_verification

DECLARED = StructType().add("id", LongType()).add("score", LongType())


def verify(frame: pd.DataFrame, verifier: Any) -> None:
    verifier(frame, DECLARED, assign_cols_by_name=True, truncate_return_schema=True)


class TestVerification:
    def test_frames_with_the_declared_columns_pass_every_time(self) -> None:
        (verifier,) = cached_verification().values()
        for _ in range(3):
            verify(pd.DataFrame({"id": [1], "score": [2]}), verifier)
            verify(pd.DataFrame({"score": [2], "id": [1]}), verifier)

    def test_a_frame_with_other_columns_fails_every_time(self) -> None:
        (verifier,) = cached_verification().values()
        wrong = pd.DataFrame({"id": [1], "scored": [2]})
        for _ in range(2):
            verify(pd.DataFrame({"id": [1], "score": [2]}), verifier)
            with pytest.raises(PySparkRuntimeError, match="scored"):
                verify(wrong, verifier)
            with pytest.raises(PySparkRuntimeError, match="scored"):
                verify(wrong, verifier)


class Conf:
    """A configuration like Spark's: properties and a method."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def timezone(self) -> str:
        self.reads += 1
        return "UTC"

    def get(self, key: str) -> str:
        return key.upper()


def evaluator(runner_conf: Any) -> Any:
    """Return a closure over the configuration, as Spark's worker does."""

    def func(what: str) -> str:
        def inner() -> str:
            return str(runner_conf.timezone)

        return " ".join([str(what), inner(), runner_conf.timezone, runner_conf.get("more")])

    return func


class TestSettled:
    def test_it_reads_the_configuration_once_and_has_its_values(self) -> None:
        conf = Conf()
        cached = CachedConf(conf)
        assert (cached.timezone, cached.timezone, cached.get("a")) == ("UTC", "UTC", "A")
        assert conf.reads == 1

    def test_a_copied_function_reads_the_configuration_once(self) -> None:
        conf = Conf()
        copied = with_names_replaced(evaluator(conf), {"str": lambda what: f"<{what}>"})
        assert copied is not None
        assert [copied("one"), copied("two")] == ["<one> <UTC> UTC MORE", "<two> <UTC> UTC MORE"]
        assert conf.reads == 1
