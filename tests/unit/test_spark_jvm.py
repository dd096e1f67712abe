import threading
from collections.abc import Mapping

import pytest

from tailrace.errors import JavaUnusable
from tailrace.spark_jvm import PrelaunchedJvm, _LaunchArguments


def launch() -> str:
    return "a gateway"


def test_a_jvm_starts_in_the_background() -> None:
    goes_on = threading.Event()
    jvm = PrelaunchedJvm({}, lambda: "a gateway" if goes_on.wait(10) else "too late")
    goes_on.set()
    assert jvm.gateway() == "a gateway"


def test_gateway_raises_the_error_of_a_failed_start() -> None:
    def fail() -> None:
        raise JavaUnusable("Spark's JVM ended during its start")

    jvm = PrelaunchedJvm({}, fail)
    with pytest.raises(JavaUnusable):
        jvm.gateway()


@pytest.mark.parametrize(
    ("settings", "can_run"),
    [
        ({}, True),
        ({"spark.master": "local[8]", "spark.app.name": "x", "spark.sql.shuffle.partitions": "3"}, True),
        ({"spark.driver.memory": "4g"}, False),
        ({"spark.jars": "mine.jar"}, False),
        ({"spark.master": "spark://host:7077"}, False),  # a driver that listens on loopback alone
    ],
)
def test_a_prelaunched_jvm_needs_the_same_launch_settings(settings: Mapping[str, str], can_run: bool) -> None:
    jvm = PrelaunchedJvm({}, launch)
    assert jvm.gateway() == "a gateway"
    assert jvm.can_run(settings) is can_run


def test_a_prelaunched_jvm_needs_the_same_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jvm = PrelaunchedJvm({}, launch)
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert not jvm.can_run({})


def test_the_jvm_gets_tailraces_and_pysparks_environment() -> None:
    arguments = _LaunchArguments({"stderr": 1}, {"JAVA_HOME": "/jdk"})
    arguments["env"] = {"SPARK_CONNECT_MODE": "0", "JAVA_HOME": "/other"}
    arguments["stdin"] = 2
    assert dict(arguments) == {"stderr": 1, "stdin": 2, "env": {"SPARK_CONNECT_MODE": "0", "JAVA_HOME": "/jdk"}}
