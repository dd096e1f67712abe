"""The life of a cluster, with small programs in place of Spark's master and workers."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from tailrace.cluster.cluster import (
    ClusterRecord,
    ClusterSize,
    find_cluster,
    in_words,
    running_clusters,
    start_cluster,
    stop_cluster,
    temporary_cluster,
)
from tailrace.cluster.daemon import Daemon
from tailrace.errors import ClusterAlreadyRunning, ClusterNotRunning, ClusterStartFailed, OptionRefused
from tailrace.kafka.ports import is_taken
from tailrace.toolchain import state_dir

WaitUntil = Callable[[Callable[[], bool], str], None]
SIZE = ClusterSize(2, 4, "2g")


def quiet(_: str) -> None:
    pass


def start(size: ClusterSize = SIZE, name: str = "default", port: int = 0) -> ClusterRecord:
    return start_cluster(quiet, size, name=name, port=port, timeout_s=20)


def pids(record: ClusterRecord) -> list[int]:
    return [pid for each in record.daemons() if (pid := each.pid()) is not None]


def files() -> list[Path]:
    folder = state_dir() / "clusters"
    return list(folder.iterdir()) if folder.exists() else []


def test_a_cluster_runs_until_it_is_stopped(spark: Path) -> None:
    seen: list[str] = []
    record = start_cluster(quiet, SIZE, progress=seen.append)
    assert record.master_url == f"spark://127.0.0.1:{record.port}"
    assert "2 of 2 workers have registered" in seen[-1]
    assert record.pid == pids(record)[0]
    assert len(pids(record)) == 3
    assert find_cluster() == record == start(), "a second start finds the running one"
    other = start(ClusterSize(1), "other")
    assert running_clusters() == [record, other]
    for name in ("other", "default"):
        stop_cluster(name)
    assert find_cluster() is None
    assert psutil.Process(record.pid).status() == psutil.STATUS_ZOMBIE, "ended; this test process is its parent"
    assert not is_taken(record.port)
    assert files() == []
    with pytest.raises(ClusterNotRunning):
        stop_cluster()


@pytest.mark.parametrize("other", [ClusterSize(3, 4, "2g"), ClusterSize(2, 2, "2g"), ClusterSize(2, 4, "3g")])
def test_a_running_cluster_of_another_size_is_not_replaced(spark: Path, other: ClusterSize) -> None:
    record = start()
    with pytest.raises(ClusterAlreadyRunning, match=record.master_url) as refused:
        start(other)
    assert in_words(record.size) in refused.value.why
    stop_cluster()


def test_a_cluster_without_one_of_its_workers_is_named_and_can_be_stopped(spark: Path, wait_until: WaitUntil) -> None:
    record = start()
    os.kill(pids(record)[2], signal.SIGKILL)
    wait_until(lambda: len(pids(record)) == 2, "the worker to end")
    with pytest.raises(ClusterAlreadyRunning) as refused:
        start()
    assert refused.value.why == "worker-2 ended"
    stop_cluster()
    assert running_clusters() == []


def test_a_worker_that_ends_at_its_start_ends_the_start_with_its_reason(spark: Path) -> None:
    (spark / "broken").write_text("disk full")
    with pytest.raises(ClusterStartFailed, match=r"worker-[12] of cluster 'default' ended during its start") as failed:
        start()
    assert failed.value.why == "disk full"
    assert running_clusters() == []
    assert files() == []


def test_a_cluster_that_is_not_ready_in_time_is_stopped(spark: Path) -> None:
    (spark / "registered").rmdir()
    (spark / "registered").write_text("not a folder")
    with pytest.raises(ClusterStartFailed):
        start_cluster(quiet, SIZE, timeout_s=1.5)
    assert files() == []


def test_a_port_of_another_process_is_refused_before_anything_starts(spark: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClusterStartFailed, match=f"another process uses port {port}"):
            start(port=port)
    assert files() == []


def test_a_process_that_has_a_recorded_id_by_chance_is_left_alone(spark: Path) -> None:
    record = start()
    stop_cluster()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        for each in record.daemons():
            each.path.mkdir(parents=True)
            each.folder.write_record(asdict(record) | {"pid": stranger.pid})
        assert find_cluster() is None
        with pytest.raises(ClusterNotRunning):
            stop_cluster()
        assert stranger.poll() is None
        stranger.kill()


def test_a_temporary_cluster_ends_with_its_block_and_cannot_be_stopped_by_others(spark: Path) -> None:
    with temporary_cluster(quiet, SIZE, timeout_s=20) as cluster:
        (record,) = running_clusters()
        assert cluster.record == record
        assert cluster.master_url == record.master_url
        assert record.owner == "program"
        with pytest.raises(ClusterNotRunning, match="belongs to a running program"):
            stop_cluster(record.name)
    assert files() == []


def test_left_over_folders_of_temporary_clusters_are_removed(spark: Path) -> None:
    left = state_dir() / "clusters" / "own-1-abc" / "master"
    left.mkdir(parents=True)
    os.utime(left.parent, (0, 0))
    new = left.parent.with_name("own-2-new")
    new.mkdir()
    with temporary_cluster(quiet, SIZE, timeout_s=20):
        assert not left.parent.exists()
        assert new.exists(), "it may be starting"


@pytest.mark.parametrize(("workers", "cores", "memory"), [(0, 4, "2g"), (2, 0, "2g"), (2, 4, "2"), (2, 4, "512m")])
def test_a_size_that_runs_nothing_is_refused(workers: int, cores: int, memory: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        ClusterSize(workers, cores, memory)
    assert refused.value.fix


def test_names_stay_in_their_folder(spark: Path) -> None:
    with pytest.raises(OptionRefused):
        start(name="../elsewhere")


def test_daemons_get_no_spark_variables_of_the_user(
    spark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_MASTER_OPTS", "-Dspark.master.rest.enabled=true")
    monkeypatch.setenv("SPARK_WORKER_DIR", "/elsewhere")
    monkeypatch.setenv("OTHER", "kept")
    from tailrace.cluster import cluster

    daemon = Daemon("worker-1", tmp_path / "worker-1")
    environment = daemon.environment(cluster.ensure_java(quiet))
    assert environment["OTHER"] == "kept"
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment["JAVA_HOME"] == str(tmp_path / "java")
    assert not {"SPARK_MASTER_OPTS", "SPARK_WORKER_DIR"} & set(environment)
    daemon.write_files()
    assert (
        "spark.master.rest.enabled false" in (Path(environment["SPARK_CONF_DIR"]) / "spark-defaults.conf").read_text()
    )
