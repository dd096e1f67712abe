"""One decision per card payment, by rules and a score from a Python function.

An ordinary pipeline file for `tailrace run`.
"""

import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import tailrace as tr

RISKY_MERCHANTS = {"gambling", "jewellery", "electronics"}


@F.udf(DoubleType(), useArrow=False)  # little work on single rows: cheapest without Arrow
def risk(amount: float, country: str, home_country: str, merchant: str, minute_of_day: int) -> float:
    """A score between 0 and 1, in ordinary Python."""
    score = min(math.log1p(amount) / 10, 0.6)
    if country != home_country:
        score += 0.25
    if minute_of_day <= 5 * 60:
        score += 0.1
    if merchant in RISKY_MERCHANTS:
        score += 0.15
    return round(min(score, 1.0), 3)


def decide(payments: DataFrame) -> DataFrame:
    """Score each payment and decide."""
    score = risk("amount", "country", "home_country", "merchant", "minute_of_day")
    decision = (
        F.when((F.col("amount") > 5000) | (F.col("score") > 0.8), "block")
        .when(F.col("score") > 0.6, "review")
        .otherwise("approve")
    )
    return (
        payments.withColumn("score", score)
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
