"""A stop on a cluster saves what was read: the request reaches the readers on the executors.

``TAILRACE_RESTARTS`` sets the number of stops; `make soak` uses twenty.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.cluster.cluster import Cluster

RESTARTS = os.environ.get("TAILRACE_RESTARTS", "2")


@pytest.mark.timeout(1800)
def test_stops_of_queries_on_executors(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    # In a program of its own: this one may have a Spark that is not on the cluster.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(Path(__file__).with_name("on_cluster.py")),
        ],
        env={**os.environ, "TAILRACE_TEST_MASTER": cluster.master_url, "TAILRACE_RESTARTS": RESTARTS},
        capture_output=True,
        text=True,
        check=False,
    )
    with capsys.disabled():
        print("\n".join(line for line in done.stdout.splitlines() if line.startswith("|")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 passed" in done.stdout
