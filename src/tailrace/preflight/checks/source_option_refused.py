"""Real time refuses an option of the Kafka source.

Problem:
    ``maxOffsetsPerTrigger`` or ``minPartitions`` kept from a micro-batch query: the first real-time batch fails.

Do this instead:
    Unset them: in real time each record is read as it arrives. ``--tasks`` sets how many tasks read a source.
"""

import re
from collections.abc import Iterator

from tailrace.conditions.condition import Condition
from tailrace.conditions.sources import SOURCE_OPTIONS_REFUSED
from tailrace.plan.refusal import Refusal
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = SOURCE_OPTIONS_REFUSED[0].code


def is_option(refusal: Refusal) -> bool:
    """Return whether Spark refuses an option of a source."""
    return _condition_of(refusal) is not None


def check(query: Query) -> Iterator[Finding]:
    """Report each refused option, as the user spelled it."""
    for refusal in query.refusals:
        if (condition := _condition_of(refusal)) is None:
            continue
        option = condition[1]["option"]
        given = (key for read in query.reads for key in read.options if key.lower() == option.lower())
        yield refused(query, condition[0], where=where(refusal), option=next(given, option))


def _condition_of(refusal: Refusal) -> tuple[Condition, re.Match[str]] | None:
    matches = ((each, match) for each in SOURCE_OPTIONS_REFUSED if (match := each.search(refusal.message)))
    return next(matches, None)
