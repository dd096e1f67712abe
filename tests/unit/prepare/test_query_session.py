import pytest

import tailrace as tr
from tailrace.errors import DefinitionError


class DataFrame:
    """As Spark Connect's, as far as anybody looks."""

    __module__ = "pyspark.sql.connect.dataframe"


@pytest.mark.parametrize("ask", [tr.check, tr.start])
def test_what_spark_connect_made_is_refused_in_so_many_words(ask: object) -> None:
    with pytest.raises(DefinitionError, match="Spark Connect") as refused:
        ask(DataFrame())  # type: ignore[operator]
    assert "tr.session()" in refused.value.fix
