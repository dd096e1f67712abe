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
from tailrace.tuning import REFUSALS

CODE = "SETTING_REFUSED"


def check(query: Query) -> Iterator[Finding]:
    """Compare what was chosen with what cannot work."""
    for refusal in REFUSALS if query.realtime else ():
        value = query.setting(refusal.key)
        is_bad = value.lower() in (bad.lower() for bad in refusal.bad)
        if is_bad and (query.shuffles or not refusal.needs_shuffle):
            yield error(
                CODE,
                f"{refusal.key}={value} cannot work in real time",
                why=refusal.why,
                fix=f"leave {refusal.key} unset, or run with --mode microbatch",
            )
