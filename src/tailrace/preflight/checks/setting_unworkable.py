"""A Spark setting does not work in real time.

Problem:
    ``spark.speculation=true`` or dynamic allocation with a shuffle, a state store other than RocksDB, checkpoint format
    1, or a sort before each repartition, kept from the settings of a batch job.

Do this instead:
    Unset them: Tailrace sets what real time needs on the query's own session, and changes nothing else.
"""

from collections.abc import Iterator

from tailrace.conditions.spark import SETTING_REFUSED
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query
from tailrace.tuning import unworkable

CODE = SETTING_REFUSED.code


def check(query: Query) -> Iterator[Finding]:
    """Compare the settings with those that cannot work."""
    for each in unworkable(query.settings, shuffles=query.shuffles) if query.realtime else ():
        value = f"={query.setting(each.key)}"
        yield refused(query, SETTING_REFUSED, setting=each.key, value=value, cause=each.why)
