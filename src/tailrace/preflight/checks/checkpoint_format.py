"""A checkpoint of the old format.

Anti-pattern:
    Continuing the checkpoint of a micro-batch query that Spark started with its own defaults: real time refuses it.

Best practice:
    Start with Tailrace in either mode: it writes format 2 from the first batch on, and the modes may take turns.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "CHECKPOINT_FORMAT_OLD"


def check(query: Query) -> Iterator[Finding]:
    """Look at the version of the commit log."""
    if query.realtime and query.saved is not None and query.saved.format == 1:
        yield error(
            CODE,
            f"the checkpoint {query.saved.location} was written in format 1, which real time cannot continue",
            why="Spark's micro-batch default writes format 1; Tailrace writes format 2 in both modes",
            fix=query.or_microbatch(
                "use a fresh checkpoint for real time: --checkpoint DIR", "go on with --mode microbatch"
            ),
        )
