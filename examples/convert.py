"""Compute new columns: euros from cents, the hour of the day."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def convert(payments: DataFrame) -> DataFrame:
    return payments.select(
        "id",
        F.upper("country").alias("country"),
        (F.col("cents") / 100).cast("decimal(20,2)").alias("euros"),
        F.hour("at").alias("hour"),
    )


pipeline = tr.Pipeline(
    name="convert", source=PAYMENTS, transform=convert, sink=tr.KafkaSink("payments-in-euros", key="id")
)
