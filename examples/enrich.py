"""Join a static table with a broadcast join.

Spark reads the table and sends it to all tasks at every checkpoint, so a large table makes checkpoints longer. A file
that is added to the table is read after the next start.
"""

from pathlib import Path

from payments import PAYMENTS
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr

COUNTRIES = Path(__file__).parent / "countries.csv"


def with_region(payments: DataFrame) -> DataFrame:
    countries = payments.sparkSession.read.csv(str(COUNTRIES), header=True, schema="country string, region string")
    return payments.join(F.broadcast(countries), "country", "left").select("id", "country", "region")


pipeline = tr.Pipeline(name="enrich", source=PAYMENTS, transform=with_region, sink=tr.KafkaSink("regions", key="id"))
