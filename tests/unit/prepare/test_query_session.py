from typing import Any

import pytest

import tailrace as tr
from tailrace.errors import DefinitionError
from tailrace.prepare import query_session
from tailrace.prepare.options import RunOptions
from tailrace.prepare.query_session import spark_for


class DataFrame:
    """As Spark Connect's, as far as anybody looks."""

    __module__ = "pyspark.sql.connect.dataframe"


@pytest.mark.parametrize("ask", [tr.check, tr.start])
def test_spark_connect_is_refused_by_its_name(ask: object) -> None:
    with pytest.raises(DefinitionError, match="Spark Connect") as refused:
        ask(DataFrame())  # type: ignore[operator]
    assert "tr.session()" in refused.value.fix


@pytest.mark.parametrize(
    ("running", "master", "ended"),
    [
        (None, "spark://127.0.0.1:7077", False),
        ("local[4]", None, False),
        ("spark://127.0.0.1:7077", "spark://127.0.0.1:7077", False),
        ("local[4]", "spark://127.0.0.1:7077", True),
    ],
)
def test_a_spark_that_the_users_file_started_makes_way_for_the_master_of_the_run(
    monkeypatch: pytest.MonkeyPatch, running: str | None, master: str | None, ended: bool
) -> None:
    masters = [running]
    begun: list[dict[str, Any]] = []
    monkeypatch.setattr(query_session, "has_context", lambda: masters[-1] is not None)
    monkeypatch.setattr(query_session, "is_replaceable", lambda: masters[-1] is not None)
    monkeypatch.setattr(query_session, "running_master", lambda: masters[-1])
    monkeypatch.setattr(query_session, "end_session", lambda: masters.append(None))
    monkeypatch.setattr(query_session, "user_settings", dict)
    monkeypatch.setattr(query_session, "replaceable_session", lambda **settings: begun.append(settings))
    spark_for(RunOptions(master=master), 2, None)
    assert (len(masters) > 1) is ended
    assert [each.get("master") for each in begun] == [master]
