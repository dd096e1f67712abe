"""The corpus's queries with Python functions: importing this adds them to it."""

import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from corpus import Sources, refused, runs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import DoubleType
from pyspark.sql.window import Window

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers do not find this file

pickled = F.udf(lambda number: number * 2, DoubleType(), useArrow=False)
with_arrow = F.udf(lambda number: number * 2, DoubleType(), useArrow=True)


@F.pandas_udf(DoubleType())  # type: ignore[call-overload]
def series(numbers: pd.Series) -> pd.Series:
    return numbers * 2


@F.pandas_udf(DoubleType())  # type: ignore[call-overload]
def iterated(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for numbers in batches:
        yield numbers * 2


@F.pandas_udf(DoubleType())  # type: ignore[call-overload]
def iterated_pairs(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    for left, right in batches:
        yield left + right


@F.arrow_udf(DoubleType())  # type: ignore[call-overload]
def arrow(numbers: pa.Array) -> pa.Array:
    return pc.multiply(numbers, 2.0)


@F.arrow_udf(DoubleType())  # type: ignore[call-overload]
def arrow_iterated(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for numbers in batches:
        yield pc.multiply(numbers, 2.0)


def same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


# Each kind of function, in a projection


@runs
def calls_a_python_function(s: Sources) -> DataFrame:
    twice = F.udf(lambda number: number * 2, "double")
    return s.events().select("id", twice("amount").alias("doubled"))


@runs
def calls_a_python_function_with_arrow(s: Sources) -> DataFrame:
    return s.events().select("id", with_arrow("amount").alias("doubled"))


@runs
def calls_a_python_function_without_arrow(s: Sources) -> DataFrame:
    return s.events().select("id", pickled("amount").alias("doubled"))


@runs
def calls_a_pandas_function(s: Sources) -> DataFrame:
    return s.events().select("id", series("amount").alias("doubled"))


@runs
def calls_a_pandas_function_over_an_iterator(s: Sources) -> DataFrame:
    return s.events().select("id", iterated("amount").alias("doubled"))


@runs
def calls_a_pandas_function_over_an_iterator_of_pairs(s: Sources) -> DataFrame:
    return s.events().select("id", iterated_pairs("amount", F.col("id").cast("double")).alias("total"))


@runs
def calls_an_arrow_function(s: Sources) -> DataFrame:
    return s.events().select("id", arrow("amount").alias("doubled"))


@runs
def calls_an_arrow_function_over_an_iterator(s: Sources) -> DataFrame:
    return s.events().select("id", arrow_iterated("amount").alias("doubled"))


@runs
def maps_in_pandas(s: Sources) -> DataFrame:
    return s.events().select("id").mapInPandas(same, "id long")


@runs
def maps_in_arrow(s: Sources) -> DataFrame:
    return s.events().select("id").mapInArrow(same, "id long")


# In other places of a query


@runs
def filters_by_a_python_function(s: Sources) -> DataFrame:
    return s.events().where(F.udf(lambda number: number > 0, "boolean")("amount"))


@runs
def filters_by_a_python_function_without_arrow(s: Sources) -> DataFrame:
    return s.events().where(F.udf(lambda number: number > 0, "boolean", useArrow=False)("amount"))


@runs
def filters_by_what_a_pandas_function_made(s: Sources) -> DataFrame:
    return s.events().where(series("amount") > 4).select("id")


@runs
def filters_by_what_an_arrow_function_made(s: Sources) -> DataFrame:
    return s.events().withColumn("doubled", arrow("amount")).where("doubled > 4").drop("tags")


@runs
def chains_python_functions(s: Sources) -> DataFrame:
    return s.events().select("id", pickled(pickled("amount")).alias("quadrupled"))


@runs
def chains_pandas_functions(s: Sources) -> DataFrame:
    return s.events().select("id", series(series("amount")).alias("quadrupled"))


@runs
def chains_functions_of_every_kind(s: Sources) -> DataFrame:
    chained = pickled(with_arrow(series(iterated(arrow(arrow_iterated("amount"))))))
    return s.events().select("id", chained.alias("large"))


@runs
def calls_functions_of_every_kind_side_by_side(s: Sources) -> DataFrame:
    kinds = (pickled, with_arrow, series, iterated, arrow, arrow_iterated)
    return s.events().select("id", *(each("amount").alias(f"made{number}") for number, each in enumerate(kinds)))


@runs
def mixes_python_with_built_in_functions(s: Sources) -> DataFrame:
    turned = F.udf(lambda text: text[::-1], "string")
    shown = F.concat(F.upper(turned(F.lower("key"))), F.lit("!"))
    return s.events().select("id", F.when(F.col("amount") > 5, shown).otherwise("small").alias("shown"))


@runs
def calls_a_python_function_of_the_whole_record(s: Sources) -> DataFrame:
    described = F.udf(lambda event: (event["id"], event["key"]), "id long, key string")
    return s.events().select(described(F.struct("id", "key")).alias("told")).select("told.*")


@runs
def calls_a_python_function_by_the_names_of_its_arguments(s: Sources) -> DataFrame:
    difference = F.udf(lambda left, right: left - right, "double")
    return s.events().select("id", difference(right="amount", left=F.lit(1.0)).alias("less"))


@runs
def calls_a_python_function_of_nothing(s: Sources) -> DataFrame:
    return s.events().select("id", F.udf(lambda: "here", "string")().alias("place"))


@runs
def calls_a_python_function_that_differs_each_time(s: Sources) -> DataFrame:
    return s.events().select("id", F.udf(lambda: 4, "int").asNondeterministic()().alias("chance"))


@runs
def calls_a_python_function_in_sql(s: Sources) -> DataFrame:
    s.spark.udf.register("corpus_doubled", lambda number: number * 2, "double")
    s.events().createOrReplaceTempView("corpus_amounts")
    return s.spark.sql("select id, corpus_doubled(amount) as n from corpus_amounts where corpus_doubled(amount) >= 0")


@runs
def explodes_what_a_python_function_made(s: Sources) -> DataFrame:
    twice = F.udf(lambda number: [number, number], "array<long>")
    return s.events().select(F.explode(twice("id")).alias("id"))


@runs
def joins_by_what_a_python_function_made(s: Sources) -> DataFrame:
    first = F.udf(lambda text: text[:1], "string")
    return s.events().withColumn("key", first("key")).join(F.broadcast(s.static()), "key")


@runs
def joins_a_static_table_and_calls_a_python_function(s: Sources) -> DataFrame:
    return s.events().join(F.broadcast(s.static()), "key").select("id", pickled(F.col("weight").cast("double")))


@runs
def joins_a_static_table_that_a_python_function_made(s: Sources) -> DataFrame:
    table = s.static().select("key", series(F.col("weight").cast("double")).alias("weight"))
    return s.events().join(F.broadcast(table), "key")


@runs
def unites_what_python_functions_made(s: Sources) -> DataFrame:
    return s.events().select("id", pickled("amount")).union(s.events(s.other).select("id", series("amount")))


@runs
def maps_a_union_in_pandas(s: Sources) -> DataFrame:
    return s.events().union(s.events(s.other)).select("id").mapInPandas(same, "id long")


@runs
def maps_what_was_mapped(s: Sources) -> DataFrame:
    return s.events().select("id").mapInPandas(same, "id long").mapInArrow(same, "id long").where("id >= 0")


@runs
def maps_to_other_columns(s: Sources) -> DataFrame:
    def lengths(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield pd.DataFrame({"length": batch["key"].str.len()})

    return s.events().mapInPandas(lengths, "length long")


# Before and after a shuffle


@runs
def repartitions_and_calls_a_python_function(s: Sources) -> DataFrame:
    return s.events().repartition(2, "key").select("id", pickled("amount").alias("doubled"))


@runs
def repartitions_by_what_a_python_function_made(s: Sources) -> DataFrame:
    return s.events().select("id", series("amount").alias("doubled")).repartition(2, "doubled")


@runs
def aggregates_by_what_a_python_function_made(s: Sources) -> DataFrame:
    return s.events().groupBy(F.udf(lambda text: text.upper(), "string")("key").alias("key")).count()


@runs
def aggregates_what_a_pandas_function_made(s: Sources) -> DataFrame:
    return s.events().groupBy("key").agg(F.sum(series("amount")).alias("total"))


@runs
def calls_python_functions_before_and_after_an_aggregate(s: Sources) -> DataFrame:
    totals = s.events().withColumn("amount", pickled("amount")).groupBy("key").agg(F.sum("amount").alias("total"))
    return totals.select("key", series("total").alias("total")).where(with_arrow("total") >= 0)


@runs
def maps_before_and_after_an_aggregate(s: Sources) -> DataFrame:
    counts = s.events().select("key").mapInPandas(same, "key string").groupBy("key").count()
    return counts.mapInArrow(same, "key string, count long")


@runs
def drops_duplicates_of_what_a_python_function_made(s: Sources) -> DataFrame:
    return s.events().select(pickled("amount").alias("doubled")).dropDuplicates(["doubled"])


@runs
def calls_a_python_function_below_a_window(s: Sources) -> DataFrame:
    timed = s.events().withWatermark("time", "10 minutes").withColumn("amount", pickled("amount"))
    return timed.groupBy(F.window("time", "5 minutes"), "key").agg(F.sum("amount").alias("total"))


@runs
def calls_a_python_function_below_a_watermark(s: Sources) -> DataFrame:
    timed = s.events().withColumn("amount", series("amount")).withWatermark("time", "10 minutes")
    return timed.dropDuplicates(["id", "time"])


# What Spark refuses


@refused
def maps_in_pandas_behind_a_barrier(s: Sources) -> DataFrame:
    return s.events().select("id").mapInPandas(same, "id long", barrier=True)


@refused
def maps_in_arrow_behind_a_barrier(s: Sources) -> DataFrame:
    return s.events().select("id").mapInArrow(same, "id long", barrier=True)


@refused
def calls_a_python_table_function(s: Sources) -> DataFrame:
    class Twice:
        def eval(self, number: int) -> Iterator[tuple[int]]:
            yield (number,)
            yield (number,)

    s.spark.udtf.register("corpus_twice", F.udtf(Twice, returnType="n long"))  # type: ignore[arg-type]
    s.events().createOrReplaceTempView("corpus_numbers")
    return s.spark.sql("select t.n from corpus_numbers, lateral corpus_twice(id) t")


@refused
def applies_to_groups(s: Sources) -> DataFrame:
    def first(group: pd.DataFrame) -> pd.DataFrame:
        return group.head(1)

    return s.events().select("id", "key").groupBy("key").applyInPandas(first, "id long, key string")


@refused
def applies_to_groups_in_arrow(s: Sources) -> DataFrame:
    def first(group: pa.Table) -> pa.Table:
        return group.slice(0, 1)

    return s.events().select("id", "key").groupBy("key").applyInArrow(first, "id long, key string")


@refused
def applies_with_state(s: Sources) -> DataFrame:
    def count(key: Any, groups: Iterator[pd.DataFrame], _state: Any) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"key": [key[0]], "n": [sum(len(group) for group in groups)]})

    return (
        s.events().groupBy("key").applyInPandasWithState(count, "key string, n long", "n long", "update", "NoTimeout")
    )


@refused
def aggregates_in_pandas(s: Sources) -> DataFrame:
    @F.pandas_udf("double")  # type: ignore[call-overload]
    def mean(numbers: pd.Series) -> float:
        return float(numbers.mean())

    return s.events().groupBy("key").agg(mean("amount").alias("mean"))


@refused
def aggregates_in_arrow(s: Sources) -> DataFrame:
    @F.arrow_udf("double")  # type: ignore[call-overload]
    def mean(numbers: pa.Array) -> float:
        return float(pc.mean(numbers).as_py())

    return s.events().groupBy("key").agg(mean("amount").alias("mean"))


@refused
def calls_a_pandas_function_over_a_window_of_rows(s: Sources) -> DataFrame:
    @F.pandas_udf("double")  # type: ignore[call-overload]
    def mean(numbers: pd.Series) -> float:
        return float(numbers.mean())

    return s.events().select("id", mean("amount").over(Window.partitionBy("key")).alias("mean"))


@refused
def joins_two_streams_by_what_python_functions_made(s: Sources) -> DataFrame:
    other = s.events(s.other).select(pickled("amount").alias("doubled"), F.col("id").alias("other"))
    return s.events().withColumn("doubled", pickled("amount")).join(other, "doubled")


@refused
def limits_what_a_python_function_made(s: Sources) -> DataFrame:
    return s.events().select(pickled("amount").alias("doubled")).limit(5)


@refused
def calls_a_python_function_and_writes_batches(s: Sources) -> Any:
    return s.events().select(pickled("amount")).writeStream.foreachBatch(lambda _frame, _number: None)


@runs
def transforms_with_state(s: Sources) -> DataFrame:
    class Counts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
            yield Row(key=key[0], n=sum(1 for _ in rows))

        def close(self) -> None:
            pass

    return s.events().groupBy("key").transformWithState(Counts(), "key string, n long", "Update", "None")
