"""The output topic named by a column: large payments to one topic, all others to another, with a header."""

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
    # Rows without a target go to the first topic.
    sink=tr.KafkaSink("small-payments", key="id", topic_column="target", headers={"country": "country"}),
)
