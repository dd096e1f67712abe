import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tailrace import spark_jvm
from tailrace.errors import JavaUnusable
from tailrace.spark_jvm import JvmAhead, _LaunchArguments


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    confs: list[Any] = []
    monkeypatch.setattr(spark_jvm, "launch_jvm", lambda conf: confs.append(conf) or "a gateway")
    return confs


def test_a_jvm_starts_while_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(spark_jvm, "launch_jvm", lambda _: "a gateway" if goes_on.wait(10) else "too late")
    ahead = JvmAhead({}, lambda: "conf")  # type: ignore[arg-type, return-value]
    goes_on.set()
    assert ahead.gateway() == "a gateway"


def test_why_it_did_not_start_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise JavaUnusable("Spark's JVM ended while it started")

    monkeypatch.setattr(spark_jvm, "launch_jvm", fail)
    ahead = JvmAhead({}, lambda: "conf")  # type: ignore[arg-type, return-value]
    with pytest.raises(JavaUnusable):
        ahead.gateway()


@pytest.mark.parametrize(
    ("wanted", "serves"),
    [
        ({}, True),
        ({"spark.master": "local[8]", "spark.app.name": "x", "spark.sql.shuffle.partitions": "3"}, True),
        ({"spark.driver.memory": "4g"}, False),
        ({"spark.jars": "mine.jar"}, False),
        ({"spark.master": "spark://host:7077"}, False),  # a driver that listens on loopback alone
    ],
)
def test_what_is_fixed_when_a_jvm_starts_must_be_the_same(
    launched: list[Any], wanted: Mapping[str, str], serves: bool
) -> None:
    ahead = JvmAhead({}, lambda: "conf")  # type: ignore[arg-type, return-value]
    assert ahead.gateway() == "a gateway"
    assert ahead.serves(wanted) is serves


def test_what_the_users_file_sets_in_the_environment_must_be_the_same(
    launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = JvmAhead({}, lambda: "conf")  # type: ignore[arg-type, return-value]
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert not ahead.serves({})


def test_the_jvm_gets_our_environment_beside_pysparks() -> None:
    arguments = _LaunchArguments({"stderr": 1}, {"JAVA_HOME": "/jdk"})
    arguments["env"] = {"SPARK_CONNECT_MODE": "0", "JAVA_HOME": "/other"}
    arguments["stdin"] = 2
    assert dict(arguments) == {"stderr": 1, "stdin": 2, "env": {"SPARK_CONNECT_MODE": "0", "JAVA_HOME": "/jdk"}}
