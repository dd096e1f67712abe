"""Ask every check."""

from collections.abc import Sequence

from tailrace.preflight import checks
from tailrace.preflight.finding import Finding
from tailrace.preflight.latency import latency_chain
from tailrace.preflight.query import Query
from tailrace.preflight.report import CheckReport, in_order


def run_checks(query: Query, beforehand: Sequence[Finding] = ()) -> CheckReport:
    """Everything that can be said about a query before it starts.

    Args:
        query: The query.
        beforehand: What was found while the facts were gathered, such as a broker that did not answer.
    """
    found = [*beforehand, *(finding for each in checks.ALL for finding in each.check(query))]
    return CheckReport(
        query.name,
        query.mode,
        query.slots,
        query.capacity.free,
        in_order(found),
        latency_chain(query),
        query.saved.switches if query.saved is not None else "",
        query.saved.python if query.saved is not None else {},
        query.runs_in_microbatch,
    )
