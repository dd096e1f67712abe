"""Tumbling windows: payments per country and minute. The watermark removes state older than an hour."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def per_minute(payments: DataFrame) -> DataFrame:
    return (
        payments.withWatermark("at", "1 hour")
        .groupBy(F.window("at", "1 minute"), "country")
        .agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
        .select(F.col("window.start").alias("minute"), "country", "payments", "cents")
    )


pipeline = tr.Pipeline(
    name="per-minute", source=PAYMENTS, transform=per_minute, sink=tr.KafkaSink("per-minute", key="country")
)
