"""One check, one file, one code. The module's docstring is its section in the reference."""

from collections.abc import Iterable
from typing import Protocol

from tailrace.preflight.checks import (
    batch_end_unsupported,
    broker_unreachable,
    checkpoint_foreign,
    checkpoint_format,
    checkpoint_outgrown,
    checkpoint_partitions,
    data_lost,
    delivery_refused,
    executors_missing,
    operator_refused,
    output_mode,
    python_foreach,
    python_function,
    query_refused,
    realtime_not_needed,
    recovery_long,
    rights_unknown,
    setting_unworkable,
    shuffle_partitions_many,
    shuffle_timer,
    shuffle_unauthenticated,
    sink_refused,
    sink_slow,
    slots_missing,
    slots_unknown,
    source_option_ignored,
    source_option_refused,
    source_refused,
    source_slow,
    source_twice,
    state_below_union,
    state_unbounded,
    static_side_rebuilt,
    watermark_late,
)
from tailrace.preflight.finding import Finding
from tailrace.preflight.query import Query


class Check(Protocol):
    """The module of a check."""

    CODE: str

    def check(self, query: Query) -> Iterable[Finding]:
        """Yield what is wrong with a query."""


ALL: tuple[Check, ...] = (
    broker_unreachable,
    slots_missing,
    slots_unknown,
    executors_missing,
    shuffle_partitions_many,
    setting_unworkable,
    query_refused,
    operator_refused,
    python_function,
    source_twice,
    state_below_union,
    source_refused,
    source_option_refused,
    source_option_ignored,
    source_slow,
    sink_refused,
    output_mode,
    sink_slow,
    python_foreach,
    checkpoint_foreign,
    checkpoint_format,
    checkpoint_outgrown,
    checkpoint_partitions,
    data_lost,
    delivery_refused,
    state_unbounded,
    watermark_late,
    static_side_rebuilt,
    batch_end_unsupported,
    shuffle_timer,
    shuffle_unauthenticated,
    recovery_long,
    rights_unknown,
    realtime_not_needed,
)
"""Findings of one severity keep this order."""
