"""A broadcast join with a static table.

The table is read and sent to all tasks again at every checkpoint, so a large one makes checkpoints longer. Files that
are added to it later are seen after the next start.
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
