"""The words of `tailrace cluster`."""

import json

import pytest

from tailrace.cli.app import _run
from tailrace.cluster import cluster
from tailrace.cluster.cluster import ClusterRecord, ClusterSize
from tailrace.errors import ClusterNotRunning


@pytest.fixture
def record(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> ClusterRecord:
    folder = str(tmp_path_factory.mktemp("cluster"))
    record = ClusterRecord("default", 7, 7077, 8080, 2, 4, "2g", "hand", folder)
    state = {"aliveworkers": 2, "activeapps": [{"name": "cards", "cores": 8, "id": "app-1"}]}
    monkeypatch.setattr(ClusterRecord, "state", lambda _: state)
    return record


def test_start_names_the_master_and_how_to_use_it(
    record: ClusterRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[ClusterSize, object]] = []
    monkeypatch.setattr(cluster, "start_cluster", lambda _, size, **more: asked.append((size, more["port"])) or record)
    assert _run(["cluster", "start", "--workers", "3", "--cores", "2", "--memory", "1g", "--port", "7077"]) == 0
    assert asked == [(ClusterSize(3, 2, "1g"), 7077)]
    printed = capsys.readouterr()
    assert "cluster 'default' is running at spark://127.0.0.1:7077: 2 workers with 4 cores and 2g each" in printed.err
    assert "tailrace run FILE --master spark://127.0.0.1:7077" in printed.err
    assert printed.out == ""
    assert _run(["cluster", "start", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["master"] == "spark://127.0.0.1:7077"


def test_status_shows_workers_and_applications(
    record: ClusterRecord, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "running_clusters", lambda: [record])
    assert _run(["cluster", "status"]) == 0
    words = capsys.readouterr().err
    assert "worker-2       does not run" in words
    assert "cards          uses 8 of 8 cores" in words
    assert _run(["cluster", "status", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["clusters"]
    assert row["daemons"][2] == {"role": "worker-2", "pid": None}
    assert row["applications"] == [{"name": "cards", "cores": 8}]
    assert row["workers_alive"] == 2


def test_status_without_a_cluster_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["cluster", "status"]) == 0
    assert "tailrace cluster start" in capsys.readouterr().err


def test_stop_without_a_cluster_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["cluster", "stop"]) == ClusterNotRunning.exit_code
    assert "[CLUSTER_NOT_RUNNING]" in capsys.readouterr().err
