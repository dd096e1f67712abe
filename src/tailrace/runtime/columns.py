"""Names of columns in Spark's own words."""


def quoted(column: str) -> str:
    """A column's name as Spark reads it literally, dots and all."""
    return "`" + column.replace("`", "``") + "`"
