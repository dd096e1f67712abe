"""Aggregate by key: every payment writes the new total of its card."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def per_card(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").agg(
        F.count("*").alias("payments"), F.sum("cents").alias("cents"), F.max("at").alias("latest")
    )


pipeline = tr.Pipeline(name="totals", source=PAYMENTS, transform=per_card, sink=tr.KafkaSink("card-totals", key="card"))
