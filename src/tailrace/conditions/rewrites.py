"""Rewrites for operations that Spark refuses on a stream."""

PIVOT_INSTEAD = (
    "one aggregate with a column for each value: F.sum(F.when(F.col('kind') == 'a', F.col('amount'))).alias('a')"
)
