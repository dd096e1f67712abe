"""Queries of every family that Spark's real-time tests know, and what becomes of each in real time.

Each is a function from what it reads to what it writes: a streaming DataFrame, or a writer where the sink matters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

SCHEMA = "id long, key string, amount double, tags array<string>, time timestamp"


@dataclass(frozen=True)
class Sources:
    """What a query may read."""

    spark: SparkSession
    servers: str
    topic: str
    other: str
    wide: str
    """A topic with more partitions than there are slots."""
    folder: str

    def read(self, topic: str | None = None, **options: str) -> DataFrame:
        """The raw records of a topic."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        reader = reader.option("subscribe", topic or self.topic).option("startingOffsets", "earliest")
        return reader.options(**options).load()

    def events(self, topic: str | None = None, **options: str) -> DataFrame:
        """The events of a topic."""
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA)
        return self.read(topic, **options).select(parsed.alias("event")).select("event.*")

    def static(self) -> DataFrame:
        """A table of three rows."""
        return self.spark.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "key string, weight int")


Build = Callable[[Sources], Any]


@dataclass(frozen=True)
class Case:
    """A query and what becomes of it: ``runs``, ``refused`` or ``starves``."""

    name: str
    verdict: str
    build: Build
    output_mode: str = "update"


_cases: list[Case] = []


def _case(verdict: str, output_mode: str = "update") -> Callable[[Build], Build]:
    def add(build: Build) -> Build:
        _cases.append(Case(build.__name__, verdict, build, output_mode))
        return build

    return add


runs, refused, starves = _case("runs"), _case("refused"), _case("starves")


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _cases


# Without state


@runs
def passes_through(s: Sources) -> DataFrame:
    return s.read().select("value")


@runs
def parses_and_projects(s: Sources) -> DataFrame:
    return s.events().select("id", (F.col("amount") * 2).alias("doubled"))


@runs
def filters(s: Sources) -> DataFrame:
    return s.events().where("amount >= 0")


@runs
def adds_and_drops_columns(s: Sources) -> DataFrame:
    return s.events().withColumn("kind", F.when(F.col("amount") > 5, "big").otherwise("small")).drop("tags")


@runs
def drops_duplicates_within_a_watermark(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "10 minutes").dropDuplicatesWithinWatermark(["id"])


@runs
def renames(s: Sources) -> DataFrame:
    return s.events().withColumnRenamed("amount", "value_of_it")


@runs
def explodes(s: Sources) -> DataFrame:
    return s.events().select("id", F.explode("tags").alias("tag"))


@runs
def explodes_with_positions(s: Sources) -> DataFrame:
    return s.events().select("id", F.posexplode("tags"))


@runs
def stacks(s: Sources) -> DataFrame:
    return s.events().selectExpr("id", "stack(2, 'amount', amount, 'id', double(id)) as (name, value_of_it)")


@runs
def uses_higher_order_functions(s: Sources) -> DataFrame:
    return s.events().select("id", F.transform("tags", F.upper).alias("loud"))


@runs
def uses_strings_and_hashes(s: Sources) -> DataFrame:
    return s.events().select(F.regexp_replace("key", "a", "b").alias("other"), F.sha2("key", 256).alias("hashed"))


@runs
def uses_the_time_and_chance(s: Sources) -> DataFrame:
    return s.events().select("id", F.current_timestamp().alias("now"), F.rand().alias("chance"), F.uuid().alias("own"))


@runs
def is_written_in_sql(s: Sources) -> DataFrame:
    s.events().createOrReplaceTempView("corpus_events")
    return s.spark.sql("with big as (select * from corpus_events where amount >= 0) select id, amount from big")


@runs
def joins_a_static_table(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static()), "key")


@runs
def joins_a_static_table_from_the_left(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static()), "key", "left")


@runs
def keeps_what_a_static_table_has(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static()), "key", "left_semi")


@runs
def keeps_what_a_static_table_has_not(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static().where("weight > 1")), "key", "left_anti")


@runs
def unites_two_topics(s: Sources) -> DataFrame:
    return s.events().union(s.events(s.other))


@runs
def unites_by_name(s: Sources) -> DataFrame:
    return s.events().select("id", "key").unionByName(s.events(s.other).select("key", "id"))


@runs
def reads_two_topics_at_once(s: Sources) -> DataFrame:
    return s.events(f"{s.topic},{s.other}")


@runs
def repartitions_by_a_key(s: Sources) -> DataFrame:
    return s.events().repartition(2, "key")


@runs
def repartitions_round_robin(s: Sources) -> DataFrame:
    return s.events().repartition(3)


@runs
def has_a_watermark_and_no_state(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "10 minutes")


@runs
def observes(s: Sources) -> DataFrame:
    return s.events().observe("seen", F.count(F.lit(1)).alias("rows"))


@runs
def reads_metadata(s: Sources) -> DataFrame:
    return s.read().select("topic", "partition", "offset", "timestamp", F.col("key").cast("string").alias("own_key"))


# With state


@runs
def counts_by_key(s: Sources) -> DataFrame:
    return s.events().groupBy("key").count()


@runs
def aggregates_by_key(s: Sources) -> DataFrame:
    return s.events().groupBy("key").agg(F.sum("amount"), F.avg("amount"), F.min("id"), F.max("id"))


@runs
def aggregates_by_two_keys(s: Sources) -> DataFrame:
    return s.events().groupBy("key", F.col("id") % 2).agg(F.count("*").alias("n"))


@runs
def aggregates_everything(s: Sources) -> DataFrame:
    return s.events().agg(F.sum("amount").alias("total"))


@runs
def counts_distinct_roughly(s: Sources) -> DataFrame:
    return s.events().groupBy("key").agg(F.approx_count_distinct("id").alias("n"))


@runs
def takes_the_last(s: Sources) -> DataFrame:
    return s.events().groupBy("key").agg(F.last("id").alias("newest"), F.max_by("id", "amount").alias("largest"))


@runs
def filters_an_aggregate(s: Sources) -> DataFrame:
    return s.events().groupBy("key").count().where("count > 0").select("key", "count")


@runs
def aggregates_in_windows(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "10 minutes").groupBy(F.window("time", "5 minutes"), "key").count()


@runs
def aggregates_in_sliding_windows(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "1 hour").groupBy(F.window("time", "10 minutes", "5 minutes")).count()


@runs
def drops_duplicates(s: Sources) -> DataFrame:
    return s.events().dropDuplicates(["id"])


@runs
def drops_duplicates_with_a_watermark(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "10 minutes").dropDuplicates(["id", "time"])


@runs
def is_distinct(s: Sources) -> DataFrame:
    return s.events().select("key").distinct()


@runs
def aggregates_a_union(s: Sources) -> DataFrame:
    return s.events().union(s.events(s.other)).groupBy("key").count()


@runs
def aggregates_a_join(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static()), "key").groupBy("weight").agg(F.sum("amount").alias("total"))


@runs
def aggregates_what_was_exploded(s: Sources) -> DataFrame:
    return s.events().select(F.explode("tags").alias("tag")).groupBy("tag").count()


@runs
def writes_row_by_row(s: Sources) -> Any:
    return s.events().writeStream.foreach(lambda _row: None)


@runs
def writes_to_the_console(s: Sources) -> Any:
    return s.events().writeStream.format("console")


# What Spark refuses


@refused
def joins_two_streams(s: Sources) -> DataFrame:
    return s.events().join(s.events(s.other).select("id", F.col("amount").alias("more")), "id")


@refused
def joins_two_streams_from_the_left(s: Sources) -> DataFrame:
    left = s.events().withWatermark("time", "1 minute").alias("l")
    right = s.events(s.other).withWatermark("time", "1 minute").alias("r")
    return left.join(right, F.expr("l.id = r.id and r.time between l.time and l.time + interval 1 minute"), "left")


@refused
def has_session_windows(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "1 minute").groupBy(F.session_window("time", "5 minutes"), "key").count()


@refused
def limits(s: Sources) -> DataFrame:
    return s.events().limit(5)


@refused
def sorts(s: Sources) -> DataFrame:
    return s.events().orderBy("id")


@refused
def sorts_within_partitions(s: Sources) -> DataFrame:
    return s.events().sortWithinPartitions("id")


@refused
def drops_duplicates_within_a_watermark_below_a_union(s: Sources) -> DataFrame:
    return drops_duplicates_within_a_watermark(s).union(s.events(s.other))


@refused
def drops_duplicates_within_a_watermark_in_one_partition(s: Sources) -> DataFrame:
    return drops_duplicates_within_a_watermark(s).coalesce(1)


@refused
def repartitions_by_range(s: Sources) -> DataFrame:
    return s.events().repartitionByRange(2, "id")


@refused
def coalesces(s: Sources) -> DataFrame:
    return s.events().coalesce(1)


@refused
def samples(s: Sources) -> DataFrame:
    return s.events().sample(0.5)


@refused
def unites_a_source_with_itself(s: Sources) -> DataFrame:
    events = s.events()
    return events.where("amount > 5").union(events.where("amount <= 5"))


@refused
def aggregates_below_a_union(s: Sources) -> DataFrame:
    return s.events().groupBy("key").count().union(s.events(s.other).select("key", F.lit(1).cast("long")))


@refused
def drops_duplicates_below_a_union(s: Sources) -> DataFrame:
    return s.events().dropDuplicates(["id"]).union(s.events(s.other))


@refused
def ranks(s: Sources) -> DataFrame:
    return s.events().withColumn("rank", F.row_number().over(Window.partitionBy("key").orderBy("id")))


@refused
def counts_distinct_exactly(s: Sources) -> DataFrame:
    return s.events().groupBy("key").agg(F.countDistinct("id"))


@refused
def aggregates_an_aggregate(s: Sources) -> DataFrame:
    return s.events().groupBy("key").count().groupBy("count").agg(F.count("*").alias("keys"))


@refused
def joins_a_static_table_without_a_key(s: Sources) -> DataFrame:
    return s.events().crossJoin(F.broadcast(s.static().select("weight")))


@refused
def merges_with_a_static_table(s: Sources) -> DataFrame:
    return s.events().join(s.static().hint("merge"), "key")


@refused
def intersects(s: Sources) -> DataFrame:
    return s.events().select("id").intersect(s.events(s.other).select("id"))


@refused
def takes_another_away(s: Sources) -> DataFrame:
    return s.events().select("id").exceptAll(s.events(s.other).select("id"))


@_case("refused", "append")
def appends_an_aggregate(s: Sources) -> DataFrame:
    return s.events().withWatermark("time", "1 minute").groupBy(F.window("time", "5 minutes")).count()


@_case("refused", "complete")
def completes_an_aggregate(s: Sources) -> DataFrame:
    return s.events().groupBy("key").count()


@_case("runs", "append")
def appends_rows(s: Sources) -> DataFrame:
    """Without state there is no difference, so that update mode is taken."""
    return s.events()


@refused
def reads_a_rate(s: Sources) -> DataFrame:
    return s.spark.readStream.format("rate").load()


@refused
def reads_files(s: Sources) -> DataFrame:
    return s.spark.readStream.schema("id long").json(s.folder)


@refused
def bounds_a_batch(s: Sources) -> DataFrame:
    return s.events(maxOffsetsPerTrigger="10")


@refused
def splits_partitions(s: Sources) -> DataFrame:
    return s.events(minPartitions="10")


@refused
def writes_no_value(s: Sources) -> Any:
    writer = s.read().select("key").writeStream.format("kafka").option("kafka.bootstrap.servers", s.servers)
    return writer.option("topic", s.other)


@refused
def writes_to_no_topic(s: Sources) -> Any:
    return s.read().select("value").writeStream.format("kafka").option("kafka.bootstrap.servers", s.servers)


@refused
def writes_batches(s: Sources) -> Any:
    return s.events().writeStream.foreachBatch(lambda _frame, _number: None)


@refused
def writes_to_memory(s: Sources) -> Any:
    return s.events().writeStream.format("memory").queryName("corpus_memory")


@refused
def writes_nowhere(s: Sources) -> Any:
    return s.events().writeStream.format("noop")


@refused
def writes_files(s: Sources) -> Any:
    return s.events().writeStream.format("json").option("path", s.folder + "/out")


# What Spark lets starve


@starves
def reads_more_partitions_than_there_are_slots(s: Sources) -> DataFrame:
    return s.events(s.wide)


@starves
def filters_more_partitions_than_there_are_slots(s: Sources) -> DataFrame:
    return s.events(s.wide).where("amount >= 0").select("id")
