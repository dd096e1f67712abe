"""What Spark's analyser refuses in any streaming query, in micro-batch too."""

from tailrace.conditions.condition import Condition
from tailrace.conditions.operators import OPERATIONS
from tailrace.errors import QueryRefused


def _rule(pattern: str, what: str, fix: str = "", *operators: str) -> Condition:
    """Make a condition of one of Spark's rules; by default its fix is the first operator's rewrite."""
    return Condition(
        error=QueryRefused,
        pattern=pattern,
        what=what,
        why="Spark: {sentence}",
        fix=fix or OPERATIONS[operators[0]].rewrite,
        operators=operators,
    )


_BOTH_SIDES = "union both sides with a column that names the side, and aggregate by the key"
PIVOT = _rule(
    r"pivot is not supported on a streaming",
    "pivot cannot run on a stream",
    "write one aggregate with a column for each value: F.sum(F.when(F.col('kind') == 'a', F.col('amount'))).alias('a')",
)
TWO_AGGREGATES = _rule(
    r"Detected pattern of possible 'correctness' issue",
    "an operation with state after another one cannot run in update mode",
    "aggregate once by all keys, or write the first result to a topic and read that topic in a second pipeline",
)
RULES = (
    PIVOT,
    TWO_AGGREGATES,
    _rule(r"Sorting is not supported", "a sort cannot run on a stream", "", "Sort", "TakeOrderedAndProject"),
    _rule(r"Limits are not supported", "limit cannot run in update mode", "", "GlobalLimit", "TakeOrderedAndProject"),
    _rule(r"session window streaming agg", "a session window cannot run in update mode", "", "SessionWindow"),
    _rule(r"NON_TIME_WINDOW_NOT_SUPPORTED", "a window function (over) cannot run on a stream", "", "Window"),
    _rule(
        r"Distinct aggregations are not supported",
        "a distinct aggregate cannot run on a stream",
        "use F.size(F.collect_set('id')) for an exact count, or F.approx_count_distinct('id') for little state",
    ),
    _rule(r"Sampling is not supported", "sample cannot run on a stream", "", "Sample"),
    _rule(
        r"dropDuplicatesWithinWatermark .* without watermark",
        "dropDuplicatesWithinWatermark needs a watermark",
        'add .withWatermark("time", "10 minutes") before it',
    ),
    _rule(r"Intersect of streaming", "intersect of two streams cannot run", _BOTH_SIDES),
    _rule(r"Except on a streaming", "except of two streams cannot run", _BOTH_SIDES),
    _rule(
        r"Outer joins? with .*\bstatic\b",
        "a join cannot keep the rows of a static table that match nothing in the stream",
        "keep the stream's rows: events.join(F.broadcast(table), 'key', 'left')",
    ),
    _rule(
        r"Outer join between two streaming .* only in Append",
        "an outer join of two streams cannot run in update mode",
        "",
        "StreamingSymmetricHashJoin",
    ),
    _rule(
        r"Required attribute 'value' not found",
        "the rows have no column 'value' for Kafka to write",
        "add one: .selectExpr('to_json(struct(*)) as value')",
    ),
    _rule(
        r"topic option required|'topic' attribute is present",
        "the writer has no topic",
        'add .option("topic", "results") to the writer, or a column \'topic\' to the rows',
    ),
)
"""Each rule with the user's words for what it refuses."""

OTHER_RULE = Condition(
    error=QueryRefused,
    pattern=(
        r"not supported (?:on|with|after|without|before|in)\b.*[Ss]treaming|UNSUPPORTED_STREAMING|STREAMING_OUTPUT_MODE"
    ),
    what="refused by Spark: {sentence}",
    why="{rule}",
    fix="rewrite that operation, or do it where the results are read",
    defaults={"rule": "Spark's analyser does not accept it on a stream"},
)
"""Any rule without its own entry."""
