"""PySpark's stateful processors, unchanged, in micro-batch and in real time."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Kafka, wait_until
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor
from test_modes import pipeline, start

import tailrace as tr
from tailrace.engine import frame_on, with_trigger, writer_frame, writer_of
from tailrace.errors import UserCodeFailed
from tailrace.testing import CHECKPOINT, run

pytestmark = pytest.mark.usefixtures("spark")

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

SHORT = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
OUT = "card string, n long, text string"


class Processor(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle

    def close(self) -> None:
        pass


class Count(Processor):
    """A value per key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        before = self.count.get()[0] if self.count.exists() else 0
        after = before + sum(1 for _ in rows)
        self.count.update((after,))
        yield Row(card=key[0], n=after, text="count")


class CountInPandas(Count):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        before = self.count.get()[0] if self.count.exists() else 0
        after = before + sum(len(frame) for frame in rows)
        self.count.update((after,))
        yield pd.DataFrame({"card": [key[0]], "n": [after], "text": ["pandas"]})


class Remember(Processor):
    """A list and a map per key, with all of their operations."""

    def init(self, handle: Any) -> None:
        self.ids = handle.getListState("ids", "id long")
        self.amounts = handle.getMapState("amounts", "id long", "amount double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.ids.appendValue((row.id,))
            self.amounts.updateValue((row.id,), (row.amount,))
            if row.id % 10 == 9:
                self.amounts.removeKey((row.id,))
        ids = [each[0] for each in self.ids.get()]
        if len(ids) > 5:
            self.ids.put([(each,) for each in sorted(ids)[-5:]])
        kept = sorted(each[0] for each in self.ids.get())
        total = sum(value[0] for value in self.amounts.values())
        assert len(list(self.amounts.keys())) == len(list(self.amounts.iterator()))
        yield Row(card=key[0], n=int(total), text=",".join(map(str, kept)))


class Silence(Processor):
    """A timer per key."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 200)
        yield Row(card=key[0], n=sum(1 for _ in rows), text="row")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        late = timerValues.getCurrentProcessingTimeInMs() - expiredTimerInfo.getExpiryTimeInMs()
        assert late >= 0
        yield Row(card=key[0], n=0, text="silent")


class Refuse(Count):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            if row.id == 3:
                raise ValueError("not this one")
        yield Row(card=key[0], n=1, text="fine")


def payments(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "card": f"c{number % 3}", "amount": 1.0} for number in range(first, first + count)]


def by_card(processor: StatefulProcessor, time_mode: str = "None") -> Any:
    def transform(rows: DataFrame) -> DataFrame:
        return rows.groupBy("card").transformWithState(processor, OUT, "Update", time_mode)

    return transform


def in_pandas(processor: StatefulProcessor) -> Any:
    def transform(rows: DataFrame) -> DataFrame:
        return rows.groupBy("card").transformWithStateInPandas(processor, OUT, "Update", "None")

    return transform


@pytest.mark.parametrize("transform", [by_card(Count()), in_pandas(CountInPandas())], ids=["rows", "pandas"])
def test_a_value_per_key(kafka: Kafka, mode: str, transform: Any) -> None:
    output = run(pipeline(kafka, transform), [*payments(0, 30), CHECKPOINT, *payments(30, 30)], mode)
    assert {card: row["n"] for card, row in output.last("card").items()} == {"c0": 20, "c1": 20, "c2": 20}
    if mode == "realtime":
        assert len(output.rows) == 60, "one call for each row"


def test_a_list_and_a_map_per_key(kafka: Kafka, mode: str) -> None:
    output = run(pipeline(kafka, by_card(Remember())), [*payments(0, 20), CHECKPOINT, *payments(20, 10)], mode)
    last = {card: (row["n"], row["text"]) for card, row in output.last("card").items()}
    assert last == {"c0": (9, "15,18,21,24,27"), "c1": (9, "16,19,22,25,28"), "c2": (9, "17,20,23,26,29")}


def test_a_timer_fires(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, by_card(Silence(), "ProcessingTime"))
    with start(kafka, here, mode, tmp_path / "c"):
        kafka.send(here.sources[0].topic_names[0], payments(0, 6))
        kafka.receive(
            here.sink.topic, lambda seen: {v["card"] for _, v in seen if v["text"] == "silent"} >= {"c0", "c1"}
        )


def test_the_modes_and_stock_spark_continue_one_checkpoint(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    topic, out = kafka.topic("payments"), kafka.topic("counts")
    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    raw = raw.option("subscribe", topic).option("startingOffsets", "earliest").load()
    rows = raw.selectExpr("from_json(cast(value as string), 'id long, card string, amount double') as row")
    counts = by_card(Count())(rows.select("row.*")).selectExpr("to_json(struct(*)) as value")
    writer = counts.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.option("topic", out).queryName("counts").outputMode("update")
    checkpoint = str(tmp_path / "c")

    def counted() -> dict[str, int]:
        return {v["card"]: v["n"] for _, v in kafka.receive(out, lambda _: True)}

    for leg, mode in enumerate(["stock", "realtime", "stock", "microbatch", "realtime", "stock"], start=1):
        kafka.send(topic, payments(0, 30))
        wanted = {f"c{number}": 10 * leg for number in range(3)}
        if mode == "stock":
            stock_run(spark, writer, checkpoint)
            kafka.receive(out, lambda seen, wanted=wanted: {v["card"]: v["n"] for _, v in seen} == wanted)
        else:
            with tr.start(writer, mode, checkpoint=checkpoint, checkpoint_every="1s", shuffle_partitions=2, conf=SHORT):
                kafka.receive(out, lambda seen, wanted=wanted: {v["card"]: v["n"] for _, v in seen} == wanted)


def stock_run(spark: Any, writer: Any, checkpoint: str) -> None:
    """Run a writer as Spark does by itself, until everything is processed."""
    own = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
    own.conf.set("spark.sql.shuffle.partitions", "2")
    own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    own.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    moved = writer_of(writer, frame_on(writer_frame(writer), own)).option("checkpointLocation", checkpoint)
    query = with_trigger(moved, realtime=False, interval_ms=0, once=True).start()
    assert query.awaitTermination(90)


def test_an_exception_names_the_users_line(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, by_card(Refuse()))
    running = start(kafka, here, mode, tmp_path / "c")
    kafka.send(here.sources[0].topic_names[0], payments(0, 6))
    with pytest.raises(UserCodeFailed, match=r"in handleInputRows: ValueError: not this one"):
        wait_until(lambda: running.wait(1), 60, "the end of the query")
