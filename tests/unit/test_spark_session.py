"""What a session is made from. Nothing here starts a JVM."""

import logging
import os
import socket
import socketserver
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from tailrace import spark_jvm, spark_session
from tailrace.errors import ClusterUnreachable, EngineMismatch, EngineMissing
from tailrace.spark_jvm import KEPT_LOGS, is_on_this_machine, log_file
from tailrace.spark_session import _require_master, has_context, require_engine, user_settings
from tailrace.toolchain.engine_jar import PROPERTIES
from tailrace.version import VERSION


@pytest.fixture(autouse=True)
def no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway port means that spark-submit started this program; then Spark itself is asked."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def write_defaults(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))


def test_no_configuration_is_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert user_settings({}) == {}


def test_the_defaults_file_skips_comments_and_blank_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(
        tmp_path,
        monkeypatch,
        "# a comment\n#spark.off 1\n\n  spark.sql.shuffle.partitions   7  \n"
        "spark.driver.extraJavaOptions\t-Da=b -Dc=d\nlonely\n",
    )
    assert user_settings({}) == {
        "spark.sql.shuffle.partitions": "7",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }


def test_the_defaults_file_of_spark_home_is_the_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(tmp_path / "conf", monkeypatch, "spark.master yarn\n")
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert user_settings({}) == {"spark.master": "yarn"}


@pytest.mark.parametrize("line", ["spark.master=local[3]", "spark.master = local[3]", "spark.master: local[3]"])
def test_the_defaults_file_accepts_java_properties_syntax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    write_defaults(tmp_path, monkeypatch, line + "\n")
    assert user_settings({}) == {"spark.master": "local[3]"}


def test_a_conf_folder_in_the_working_directory_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(tmp_path / "conf", monkeypatch, "spark.master yarn\n")
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.chdir(tmp_path)
    assert user_settings({}) == {}


def test_submit_arguments_are_split_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        "--master local[7] --conf spark.a=1 -c 'spark.b=x y=z' --conf broken --name spark.c=9 pyspark-shell",
    )
    assert user_settings({}) == {"spark.master": "local[7]", "spark.a": "1", "spark.b": "x y=z"}


def test_submit_arguments_accept_an_equals_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master=local[7] --conf=spark.a=1 pyspark-shell")
    assert user_settings({}) == {"spark.master": "local[7]", "spark.a": "1"}


def test_each_origin_overrides_the_previous_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_defaults(tmp_path, monkeypatch, "spark.a file\nspark.b file\nspark.c file\nspark.master yarn\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.b=args --conf spark.c=args --master local[2] pyspark-shell")
    assert user_settings({"spark.c": "given", "spark.d": "given"}) == {
        "spark.a": "file",
        "spark.b": "args",
        "spark.c": "given",
        "spark.d": "given",
        "spark.master": "local[2]",
    }


def test_the_given_configuration_is_not_modified() -> None:
    given = {"spark.a": "1"}
    user_settings(given)["spark.b"] = "2"
    assert given == {"spark.a": "1"}


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[*]", "local[2,3]", "spark://127.0.0.1:7077", "spark://localhost:7077"]
)
def test_masters_on_this_machine(master: str) -> None:
    assert is_on_this_machine({"spark.master": master})


@pytest.mark.parametrize(
    "master", ["yarn", "spark://host:7077", "spark://127.0.0.1:1,10.0.0.1:1", "k8s://https://host"]
)
def test_other_masters(master: str) -> None:
    assert not is_on_this_machine({"spark.master": master})


def test_no_master_means_this_machine() -> None:
    assert is_on_this_machine({})


def test_the_log_is_in_the_users_state_folder(home: Path) -> None:
    assert log_file().is_relative_to(home / "state")


def test_reading_the_configuration_does_not_start_spark() -> None:
    user_settings({})
    assert not has_context()
    assert SparkContext._gateway is None


class FakeSpark:
    """As much of a session as the question after its engine needs; what is not there must not be asked for."""

    def __init__(self, version: str | None) -> None:
        loader = SimpleNamespace(getResource=self._resource)
        thread = SimpleNamespace(currentThread=lambda: SimpleNamespace(getContextClassLoader=lambda: loader))
        self._version = version
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Thread=thread)))
        if version is not None:
            engine = SimpleNamespace(Engine=SimpleNamespace(version=lambda: version))
            sql = SimpleNamespace(tailrace=engine)
            self._jvm.org = SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=sql)))

    def _resource(self, name: str) -> str | None:
        assert name == PROPERTIES
        return None if self._version is None else f"jar:file:/engine.jar!/{name}"


def require(version: str | None) -> None:
    spark: Any = FakeSpark(version)
    require_engine(spark)


def test_the_engine_of_this_version_is_accepted() -> None:
    require(VERSION)


def test_a_spark_without_the_engine_is_refused() -> None:
    with pytest.raises(EngineMissing) as missing:
        require(None)
    assert "tr.session()" in missing.value.fix


@pytest.mark.parametrize("version", ["0.0.1", f"{VERSION}.dev1", "unknown", ""])
def test_the_engine_of_another_version_is_refused(version: str) -> None:
    with pytest.raises(EngineMismatch) as refused:
        require(version)
    assert refused.value.what.endswith(f"engine of Tailrace {version}, but this is Tailrace {VERSION}")
    assert refused.value.fix


ENDED = 2**22
"""No process has this id: Linux counts to one less."""


def old_logs(count: int) -> list[Path]:
    """Logs of ended processes, the oldest first."""
    folder = log_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    logs = [folder / f"spark-{ENDED + number}.log" for number in range(count)]
    for number, log in enumerate(logs):
        log.touch()
        os.utime(log, (number, number))
    return logs


def test_only_the_newest_logs_are_kept() -> None:
    logs = old_logs(KEPT_LOGS + 2)
    spark_jvm._open_log(log_file()).close()
    assert [log.exists() for log in logs] == [False] * 2 + [True] * KEPT_LOGS
    assert log_file().exists()


def test_an_old_log_of_a_live_process_is_kept() -> None:
    old_logs(KEPT_LOGS + 2)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        live = log_file().with_name(f"spark-{other.pid}.log")
        live.touch()
        os.utime(live, (0, 0))
        spark_jvm._open_log(log_file()).close()
        assert live.exists()


def test_the_log_of_a_live_jvm_of_another_process_is_kept() -> None:
    oldest = old_logs(KEPT_LOGS + 2)[0]
    with spark_jvm._open_log(oldest) as log:
        jvm = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=log)
    os.utime(oldest, (0, 0))
    with jvm:
        spark_jvm._open_log(log_file()).close()
        assert oldest.exists()
    os.utime(oldest, (0, 0))
    old_logs(KEPT_LOGS + 2)
    spark_jvm._open_log(log_file()).close()
    assert not oldest.exists()


def test_a_log_that_is_removed_concurrently_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = old_logs(KEPT_LOGS + 2)
    real_glob = Path.glob

    def vanishing(folder: Path, pattern: str) -> list[Path]:
        names = list(real_glob(folder, pattern))
        logs[0].unlink()
        return names

    monkeypatch.setattr(Path, "glob", vanishing)
    spark_jvm._open_log(log_file()).close()
    assert not logs[1].exists()


def test_py4j_messages_in_the_root_logger_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.filters[:]
    try:
        spark_session._quiet_loggers()
        spark_session._quiet_loggers()
        record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "Exception", None, None)
        own = logging.LogRecord("root", logging.ERROR, "/x/mine.py", 1, "my words", None, None)
        assert not root.filter(record)
        assert root.filter(own)
        assert len(root.filters) <= len(before) + 1
    finally:
        root.filters[:] = before


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"spark://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=url) as refused:
            _require_master(url)
        assert refused.value.why
        unused.listen()
        _require_master(url)
        _require_master(url.replace("spark://", "spark://127.0.0.1:1,"))  # one of several is enough


@pytest.mark.parametrize("url", ["spark://host", "spark://:7077:x", "spark://"])
def test_an_address_without_a_port_is_refused(url: str) -> None:
    with pytest.raises(ClusterUnreachable):
        _require_master(url)


@pytest.mark.parametrize("url", ["local[2]", "yarn", "k8s://https://host"])
def test_other_masters_are_not_asked(url: str) -> None:
    _require_master(url)


@pytest.mark.parametrize(
    ("failure", "printed"),
    [(EOFError(), ""), (ConnectionResetError(), ""), (KeyError("accumulator 7"), "KeyError: 'accumulator 7'")],
    ids=["end of the JVM", "reset by the JVM", "another error"],
)
def test_pysparks_accumulator_server_does_not_print_the_end_of_the_jvm(
    failure: Exception, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise failure

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        context: Any = SimpleNamespace(_accumulatorServer=server)
        spark_session._quiet_accumulator_server(context)
        with socket.create_connection(server.server_address, timeout=10):
            server.handle_request()
    said = capsys.readouterr().err
    assert bool(said) is bool(printed)
    assert printed in said
