"""One decision per card payment, by rules and a score. An ordinary pipeline file: `tailrace run` takes it as it is."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def decide(payments: DataFrame) -> DataFrame:
    """Score each payment between 0 and 1 and decide."""
    abroad = F.col("country") != F.col("home_country")
    at_night = F.col("minute_of_day").between(0, 5 * 60)
    risky_merchant = F.col("merchant").isin("gambling", "jewellery", "electronics")
    score = (
        F.least(F.log1p("amount") / 10, F.lit(0.6))
        + F.when(abroad, 0.25).otherwise(0.0)
        + F.when(at_night, 0.1).otherwise(0.0)
        + F.when(risky_merchant, 0.15).otherwise(0.0)
    )
    decision = (
        F.when((F.col("amount") > 5000) | (F.col("score") > 0.8), "block")
        .when(F.col("score") > 0.6, "review")
        .otherwise("approve")
    )
    return (
        payments.withColumn("score", F.round(F.least(score, F.lit(1.0)), 3))
        .withColumn("decision", decision)
        .select("payment_id", "card", "decision", "score", "sent_ns")
    )


pipeline = tr.Pipeline(
    name="fraud",
    source=tr.KafkaSource(
        "payments",
        schema="payment_id long, card string, amount double, country string, home_country string, "
        "merchant string, minute_of_day int, sent_ns long",
    ),
    transform=decide,
    sink=tr.KafkaSink("decisions", key="card"),
)
