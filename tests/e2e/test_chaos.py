"""`tailrace chaos`: a user's pipeline under faults, counted exactly. `chaos_soak.py` has the long runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_command import ROUTED, Project, require_exact


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with Project.at(tmp_path) as project:
        yield project


@pytest.mark.timeout(300)
def test_killed_jvms_and_workers_lose_nothing(project: Project) -> None:
    faults = ("--kills", "3", "--fault", "jvm,workers", "--seconds", "6")
    result = project.chaos("payments.py", *faults, *ROUTED)
    require_exact(result, 3)
    assert {kind: each["kills"] for kind, each in result["kinds"].items()} == {"jvm": 2, "workers": 1}
    assert result["starts"] == 3
    assert [each["restarted"] for each in result["faults"]] == [True, False, True]
