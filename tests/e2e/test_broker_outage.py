"""A broker that is gone for a while: a running query tells of it, and goes on."""

from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, suspended, wait_until

import tailrace as tr
from tailrace.kafka import reachable
from tailrace.kafka.broker import Broker
from tailrace.running import broker_watch


def test_the_start_and_the_end_of_an_outage_are_logged(
    spark: Any,
    broker: Broker,
    kafka: Kafka,
    mode: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachable, "ANSWER_TIMEOUT_S", 2.0)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.2)
    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.2)
    source, sink = kafka.topic("in"), kafka.topic("out")
    pipeline = tr.Pipeline(
        "outage",
        tr.KafkaSource(source, "id long", starting="earliest"),
        lambda events: events,
        tr.KafkaSink(sink),
        malformed="drop",
    )

    def messages() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "tailrace"]

    with tr.start(pipeline, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c"):
        kafka.send(source, [{"id": 1}])
        kafka.receive_count(sink, 1)
        assert messages() == []
        with suspended(broker):
            wait_until(lambda: len(messages()) == 1, 30, "the outage is logged")
        wait_until(lambda: len(messages()) == 2, 30, "its end is logged")
        kafka.send(source, [{"id": 2}])
        kafka.receive_count(sink, 2)
    gone, back = messages()
    assert gone == f"query 'outage': no Kafka broker responds at {kafka.bootstrap_servers}"
    assert f"the Kafka broker at {kafka.bootstrap_servers} responds again after" in back
