"""The lanes of other engines: what they state is what their processes are given."""

import ast
import re
from pathlib import Path

import pytest

from tailrace.errors import LaneUnavailable
from tailrace.measure.lane import Cell, Lane
from tailrace.measure.lanes import engine_setup as module
from tailrace.measure.lanes.engine_python import venv_python
from tailrace.measure.lanes.engine_setup import CHECKPOINT_INTERVAL, EACH_PARTITION, PROGRAMS, Engine
from tailrace.measure.lanes.engines import (
    ENGINE_LANES,
    FLINK,
    FLINK_LANES,
    KAFKA_STREAMS,
    PYFLINK,
    PYFLINK_LANES,
    QUIX,
    STREAMS_LANES,
)
from tailrace.measure.works import Work
from tailrace.toolchain import Java, read_lock

ENGINES = [FLINK, KAFKA_STREAMS, QUIX, PYFLINK]
LANES: list[Lane] = list(ENGINE_LANES)
JVM = [*FLINK_LANES, *STREAMS_LANES]
LANES_BY_NAME = {lane.name: lane for lane in LANES}
PINNED = {"flink": "org.apache.flink:flink-core", "kafka-streams": "org.apache.kafka:kafka-streams"}


@pytest.fixture(autouse=True)
def set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that look set up."""
    monkeypatch.setattr(module, "find_java", lambda: Java(Path("/j"), Path("/j/bin/java"), "17.0.1", 17, "PATH"))
    environment = venv_python(PYFLINK).parents[1]
    (environment / "lib" / "python3.11" / "site-packages").mkdir(parents=True)


def cell(tmp_path: Path, work: Work, partitions: int = 3) -> Cell:
    return Cell(work, "127.0.0.1:9", "in", "out", partitions, tmp_path, checkpoint_every_s=7.5)


def given(lane: Lane, tmp_path: Path) -> dict[str, str]:
    command = lane.command(cell(tmp_path, min(lane.works)))
    assert command is not None
    return dict(word.split("=", 1) for word in command.argv if "=" in word and not word.startswith("-"))


def test_names_and_titles_are_unique() -> None:
    assert len(LANES_BY_NAME) == len(LANES)
    assert len({lane.title for lane in LANES}) == len(LANES)


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_every_engine_has_the_same_kafka_settings(lane: Lane, tmp_path: Path) -> None:
    wanted = {
        "acks": "all",
        "linger.ms": "0",
        "fetch.min.bytes": "1",
        "isolation.level": "read_uncommitted",
        r"fetch.(max.wait|wait.max).ms": "500",
    }
    for stated in (lane.settings, given(lane, tmp_path)):
        for setting, value in wanted.items():
            assert {stated[key] for key in stated if re.search(rf"(^|\.){setting}$", key)} == {value}, setting


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_the_process_gets_the_reported_settings(lane: Lane, tmp_path: Path) -> None:
    arguments = given(lane, tmp_path)
    spoken = {"7500", "7500 ms", "7.5"}
    for key, value in lane.settings.items():
        if key in ("sink.delivery-guarantee", "scan.startup.mode", "_python_worker_execution_mode"):
            continue  # in the program itself, or in the environment
        short = key.replace(".properties.", ".")
        values = [arguments[each] for each in (short, f"conf.{short}") if each in arguments]
        assert len(values) == 1, key
        if value == EACH_PARTITION:
            assert values == ["3"]
        elif value == CHECKPOINT_INTERVAL:
            assert set(values) <= spoken
        else:
            assert values == [value]


@pytest.mark.parametrize("lane", [*JVM, *PYFLINK_LANES], ids=lambda lane: lane.name)
def test_every_jvm_has_a_bounded_heap(lane: Lane, tmp_path: Path) -> None:
    command = lane.command(cell(tmp_path, min(lane.works)))
    assert command is not None
    assert "-Xmx1g" in [*command.argv, *command.env.get("FLINK_ENV_JAVA_OPTS", "").split()]


@pytest.mark.parametrize("lane", [*FLINK_LANES, *PYFLINK_LANES], ids=lambda lane: lane.name)
def test_flink_listens_only_on_loopback(lane: Lane) -> None:
    bound = {key: value for key, value in lane.settings.items() if "bind" in key or key.endswith((".host", ".address"))}
    assert {"jobmanager.bind-host", "taskmanager.bind-host", "rest.bind-address"} <= set(bound)
    assert set(bound.values()) == {"127.0.0.1"}


def test_only_the_lane_with_a_record_cache_merges() -> None:
    assert [lane.name for lane in LANES if lane.merges] == ["kafka-streams"]
    assert LANES_BY_NAME["kafka-streams-tuned"].settings["statestore.cache.max.bytes"] == "0"


def test_default_lanes_keep_the_defaults() -> None:
    for name in ("flink", "pyflink"):
        assert not {key for key in LANES_BY_NAME[name].settings if re.search("buffer|checkpoint|reuse|bundle", key)}
    assert not {key for key in LANES_BY_NAME["kafka-streams"].settings if re.search("cache|commit", key)}
    assert "commit_interval" not in LANES_BY_NAME["quix"].settings


def test_pyflink_has_its_three_modes(tmp_path: Path) -> None:
    assert given(LANES_BY_NAME["pyflink-thread"], tmp_path)["conf.python.execution-mode"] == "thread"
    assert given(LANES_BY_NAME["pyflink-tuned"], tmp_path)["conf.python.fn-execution.bundle.time"] == "1"
    assert not [key for key in given(LANES_BY_NAME["pyflink"], tmp_path) if "execution-mode" in key or "bundle" in key]


def test_a_missing_environment_makes_the_lane_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "another"))
    with pytest.raises(LaneUnavailable):
        LANES_BY_NAME["pyflink"].command(cell(tmp_path, Work.PYTHON))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_the_reported_version_is_the_locked_one(engine: Engine) -> None:
    if engine.name in PINNED:
        jars = [jar.coordinate for jar in read_lock(engine.programs / "jars.lock")]
        assert f"{PINNED[engine.name]}:{engine.version}" in jars
    else:
        package = {"quix": "quixstreams", "pyflink": "apache-flink"}[engine.name]
        assert f"{package}=={engine.version} " in (engine.programs / "requirements.lock").read_text()


@pytest.mark.parametrize("lock", sorted(PROGRAMS.glob("*/*.lock")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_lock_has_checksums(lock: Path) -> None:
    if lock.name == "jars.lock":
        assert read_lock(lock)
        return
    entries = re.sub(r"\\\n\s*", " ", lock.read_text()).splitlines()
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9._-]+==[^\s;]+ .*--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*/*.py")), ids=lambda path: path.name)
def test_programs_do_not_import_tailrace(program: Path) -> None:
    nodes = list(ast.walk(ast.parse(program.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] == "tailrace"}
