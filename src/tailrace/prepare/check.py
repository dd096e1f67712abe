"""Check a query without starting it: nothing runs, nothing is written, no topic is created."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.pipeline import Pipeline
from tailrace.preflight.report import CheckReport
from tailrace.prepare.options import RunOptions, takes_options
from tailrace.prepare.prepare import prepare, target_of
from tailrace.prepare.target import Announce


@takes_options(RunOptions)
def check(what: Pipeline | DataStreamWriter | DataFrame, options: RunOptions) -> CheckReport:
    """Check whether a query would run, without starting it.

    Args:
        what: A :class:`Pipeline`, a ``DataStreamWriter``, or a streaming DataFrame.
        options: The options of the run.

    Returns:
        The findings; ``report.ok`` tells whether it would run and process everything.

    Raises:
        TailraceError: It could not be checked: Spark does not start, an option is invalid, no broker is named.
    """
    return check_query(what, options)


def check_query(
    what: Pipeline | DataStreamWriter | DataFrame, options: RunOptions, announce: Announce | None = None
) -> CheckReport:
    """Check a query; ``announce`` receives one line for each step that takes long."""
    with prepare(target_of(what, options), options, dry_run=True, announce=announce) as prepared:
        return prepared.report
