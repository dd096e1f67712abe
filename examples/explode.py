"""Write several rows per record: one for each tag."""

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr


def one_per_tag(payments: DataFrame) -> DataFrame:
    return payments.select("id", F.explode("tags").alias("tag"))


pipeline = tr.Pipeline(name="explode", source=PAYMENTS, transform=one_per_tag, sink=tr.KafkaSink("tags", key="tag"))
