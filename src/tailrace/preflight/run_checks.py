"""Run every check."""

from collections.abc import Sequence

from tailrace.preflight import checks
from tailrace.preflight.finding import Finding
from tailrace.preflight.latency import latency_chain
from tailrace.preflight.query import Query
from tailrace.preflight.report import CheckReport, worst_first


def run_checks(query: Query, earlier: Sequence[Finding] = ()) -> CheckReport:
    """Run every check on a query.

    Args:
        query: The query.
        earlier: Findings from collecting the facts, such as a broker that did not respond.
    """
    findings = [*earlier, *(finding for each in checks.ALL for finding in each.check(query))]
    return CheckReport(
        query.name,
        query.mode,
        query.slots,
        query.capacity.free,
        worst_first(findings),
        latency_chain(query),
        query.progress,
        query.saved.python if query.saved is not None else {},
        query.runs_in_microbatch,
        reads=query.tasks,
        delivery=query.delivery,
    )
