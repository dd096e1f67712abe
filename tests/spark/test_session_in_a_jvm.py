"""`tr.session()` in a real JVM, without a broker. One program answers all questions: a JVM's start is what costs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """\
import json, os
import tailrace as tr
from tailrace import engine
from tailrace.plan.slots import count_slots
from tailrace.spark_jvm import log_file, spark_archive
from tailrace.spark_session import end_session
from tailrace.toolchain import find_java, jar_paths
from pathlib import Path

spark = tr.session(
    master="local[3]",
    conf={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "true", "spark.sql.shuffle.partitions": "5"},
)
ticks = spark.readStream.format("rate").load()
twice = ticks.groupBy("value").count().repartition(4, "count")
own = engine.clone_session(spark)
own.conf.set("spark.sql.shuffle.partitions", "9")
answers = {
    "timer": spark.conf.get("spark.shuffle.streaming.networkBufferMaxWaitTimeMs"),
    "console": spark.conf.get("spark.ui.showConsoleProgress"),
    "host": spark.conf.get("spark.driver.host"),
    "connector": engine.has_kafka_connector(spark),
    "slots": engine.capacity(spark).slots,
    "stages": count_slots(engine.examine(twice).plan, source_tasks=1).stages,
    "shuffle_of_the_session": spark.conf.get("spark.sql.shuffle.partitions"),
    "python": os.environ["PYSPARK_PYTHON"],
    "same": tr.session() is not None and tr.session().sparkContext is spark.sparkContext,
    "rows": spark.range(10).count(),
    "log": str(log_file()),
    "archive": str(spark_archive(find_java(), jar_paths('connector')).path),
    "mapped": Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text(),
}
end_session()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("session")
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=mine, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return {"stderr": result.stderr, "left": list(folder.iterdir())} | json.loads(result.stdout)


def test_classes_come_from_the_archive_that_doctor_writes(answers: dict[str, Any]) -> None:
    assert answers["archive"] in answers["mapped"]


def test_soft_settings_fill_the_gaps_and_the_users_win(answers: dict[str, Any]) -> None:
    assert answers["timer"] == "1"
    assert answers["console"] == "true"
    assert answers["host"] == "127.0.0.1"
    assert answers["python"] == sys.executable


def test_it_works_and_can_read_kafka(answers: dict[str, Any]) -> None:
    assert answers["rows"] == 10
    assert answers["connector"] is True
    assert answers["slots"] == 3
    assert answers["same"] is True


def test_a_query_is_planned_without_being_started(answers: dict[str, Any]) -> None:
    assert answers["stages"] == [1, 5, 4]


def test_a_clone_keeps_its_settings_to_itself(answers: dict[str, Any]) -> None:
    assert answers["shuffle_of_the_session"] == "5"


def test_it_is_quiet_and_leaves_nothing_behind(answers: dict[str, Any]) -> None:
    assert answers["stderr"] == ""
    assert answers["left"] == []
    assert Path(answers["log"]).exists(), "what Spark says is kept in a file"
