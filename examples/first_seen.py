"""Drop duplicates: write each pair of card and country once."""

from payments import PAYMENTS
from pyspark.sql import DataFrame

import tailrace as tr


def first_seen(payments: DataFrame) -> DataFrame:
    return payments.select("card", "country").dropDuplicates()


pipeline = tr.Pipeline(
    name="first-seen", source=PAYMENTS, transform=first_seen, sink=tr.KafkaSink("cards-abroad", key="card")
)
