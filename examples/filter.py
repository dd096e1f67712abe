"""Keep only some records: large payments abroad."""

from payments import PAYMENTS
from pyspark.sql import DataFrame

import tailrace as tr


def large_and_abroad(payments: DataFrame) -> DataFrame:
    return payments.where("cents > 10000 and country <> 'DE'").select("id", "card", "cents")


pipeline = tr.Pipeline(
    name="filter", source=PAYMENTS, transform=large_and_abroad, sink=tr.KafkaSink("large-abroad", key="card")
)
