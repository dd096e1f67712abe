"""A Spark setting with which real time cannot work.

Anti-pattern:
    ``spark.speculation=true`` or dynamic allocation with a shuffle, a state store other than RocksDB, checkpoint
    format 1, or a sort before each repartition, kept from a batch job's settings.

Best practice:
    Leave them unset: Tailrace sets what real time needs on the query's own session, and nothing else changes.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query
from tailrace.tuning import unworkable

CODE = "SETTING_REFUSED"


def check(query: Query) -> Iterator[Finding]:
    """Compare what was chosen with what cannot work."""
    for refusal in unworkable(query.settings, shuffles=query.shuffles) if query.realtime else ():
        yield error(
            CODE,
            f"{refusal.key}={query.setting(refusal.key)} cannot work in real time",
            why=refusal.why,
            fix=query.or_microbatch(f"unset {refusal.key}"),
        )
