"""Route by a column: large payments go to one topic, all others to another, with a header."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def by_size(payments: DataFrame) -> DataFrame:
    large = F.col("cents") > 10_000
    return payments.select("id", "country", F.when(large, "large-payments").alias("target"))


pipeline = tr.Pipeline(
    name="route",
    source=PAYMENTS,
    transform=by_size,
    # Rows with a null target go to small-payments.
    sink=tr.KafkaSink("small-payments", key="id", topic_column="target", headers={"country": "country"}),
)
