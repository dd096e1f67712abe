"""Sliding windows: the largest payment in windows of ten minutes that start every five minutes."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def largest(payments: DataFrame) -> DataFrame:
    return (
        payments.withWatermark("at", "1 hour")
        .groupBy(F.window("at", "10 minutes", "5 minutes"))
        .agg(F.max("cents").alias("largest"))
        .select(F.col("window.start").alias("since"), "largest")
    )


pipeline = tr.Pipeline(name="sliding", source=PAYMENTS, transform=largest, sink=tr.KafkaSink("largest", key="since"))
