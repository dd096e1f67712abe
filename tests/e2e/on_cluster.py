"""Stops of queries on a cluster; `test_exact_stop_cluster.py` runs this module with the master of one."""

import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import Kafka, wait_until
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from test_exact_stop import require_exact_stops, times  # noqa: F401 - a fixture
from stops import Query

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("name", ["stateless", "aggregate"])
def test_nothing_is_lost_or_repeated(
    kafka: Kafka,
    tmp_path: Path,
    times: dict[str, list[float]],  # noqa: F811
    name: str,
    mode: str,
) -> None:
    require_exact_stops(kafka, tmp_path, times, name, mode)


def test_a_stop_while_a_task_is_retried(kafka: Kafka, tmp_path: Path) -> None:
    """The retry reads as far as the attempt that failed, so that the next start repeats nothing."""
    failed = tmp_path / "failed"

    @F.udf("long")
    def fail_once(value):  # type: ignore[no-untyped-def]
        if value == 60 and not failed.exists():
            failed.touch()
            raise ValueError("the first attempt fails")
        if failed.exists():
            time.sleep(0.02)
        return value

    def transform(records: DataFrame) -> DataFrame:
        return records.withColumn("a", fail_once("a"))

    query = Query(kafka, tmp_path, transform)
    running = query.start("realtime")
    for number in range(100):
        kafka.send(query.source, [{"a": number}])  # one after the other: results come before the failure
    wait_until(failed.exists, 60, "the first attempt fails")
    assert running.stop(60).repeats == ""
    query.require_stopped(running, "realtime")
    before = query.written()
    query.finish("realtime")
    after = query.written()
    assert set(after) == set(range(100))
    assert Counter({a: after[a] for a in before}) == before, "nothing is repeated after the stop"
