"""The owner's side of load and probe, with workers that answer what a test says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailrace.errors import MeasurementFailed
from tailrace.measure.schedule import NS_PER_S, Clock, Shape
from tailrace.measure.traffic import load, probe
from tailrace.measure.traffic.load import Flow, Load, LoadReport
from tailrace.measure.traffic.probe import Arrivals, ByFields, ByLineage, Probe, Snapshot, save_arrivals
from tailrace.measure.traffic.records import Events

CLOCK = Clock(1_000, lambda: 500)
CLIENT = {"bootstrap.servers": "b:1"}
REPORT = {
    "sent": 5, "failed": 1, "measured": 3, "took_s": 0.5, "late_ms_p50": 1.0, "late_ms_p99": 2.0, "late_ms_max": 3.0
}  # fmt: skip
SNAPSHOT = {"arrived": 1, "recent": 1, "p50_ms": 0.5, "p95_ms": None, "p99_ms": None, "ready": True}


class FakeWorker:
    """A worker that answers in turn, then falls silent."""

    def __init__(self, module: str, settings: Mapping[str, Any]) -> None:
        self.module, self.settings = module, dict(settings)
        self.messages: list[Mapping[str, Any]] = []
        self.answers: list[dict[str, Any] | None] = []
        self.pid = 77
        self.is_closed = False

    def send(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    def answer(self, _timeout_s: float) -> dict[str, Any] | None:
        return self.answers.pop(0) if self.answers else None

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (load, probe):
        monkeypatch.setattr(module, "Worker", FakeWorker)
    monkeypatch.setattr(probe, "partition_counts", lambda _config, topics: dict.fromkeys(topics, 4))


def worker_of(owner: Load | Probe) -> FakeWorker:
    worker = owner._worker
    assert isinstance(worker, FakeWorker)
    return worker


def some_load() -> Load:
    return Load(
        CLIENT,
        "in",
        Flow(Events(200), 100.0, Shape.STEP, burst=9, stamped=True, first_number=40),
        clock=CLOCK,
        limit_s=60,
    )


def test_a_load_passes_the_plan_to_its_process() -> None:
    with some_load() as sending:
        settings = worker_of(sending).settings
        assert (settings["shape"], settings["rate_per_s"], settings["burst"], settings["stamped"]) == (
            "step",
            100.0,
            9,
            True,
        )
        assert settings["start_ns"] == sending.plan.start_ns == 1_500 + 2 * NS_PER_S
        assert settings["end_ns"] == settings["start_ns"] + 60 * NS_PER_S
        assert settings["clock_offset_ns"] == 1_000
        assert settings["first_number"] == 40 == sending.number_until(settings["start_ns"])
        assert sending.number_until(settings["start_ns"] + NS_PER_S) == 40 + sending.plan.count_until(
            settings["start_ns"] + NS_PER_S
        )
        assert settings["records"] == {"kind": "events", "payload_bytes": 200}
        sending.measure(5, 9)
        assert worker_of(sending).messages == [{"first_ns": 5, "end_ns": 9}]
        assert sending.pid == 77
    assert worker_of(sending).is_closed


def test_a_load_that_does_not_end_times_out() -> None:
    with some_load() as sending:
        worker_of(sending).answers = [None, REPORT]
        assert sending.report(20.0) == LoadReport(5, 1, 3, 0.5, 1.0, 2.0, 3.0)
        with pytest.raises(MeasurementFailed, match="the load did not end"):
            sending.report(0.0)


@pytest.mark.parametrize(
    ("known_by", "fields"), [(ByFields("payment_id", "sent_ns"), ["payment_id", "sent_ns"]), (ByLineage(), None)]
)
def test_a_probe_passes_partitions_and_fields_to_its_process(
    known_by: ByFields | ByLineage, fields: list[str] | None
) -> None:
    with Probe(CLIENT, "out", clock=CLOCK, known_by=known_by) as reading:
        settings = worker_of(reading).settings
        assert (settings["topic"], settings["partitions"], settings["fields"]) == ("out", 4, fields)
    assert worker_of(reading).is_closed


def test_a_probe_is_watched_until_the_condition_holds() -> None:
    with Probe(CLIENT, "out", clock=CLOCK, known_by=ByLineage()) as reading:
        worker_of(reading).answers = [None, *({**SNAPSHOT, "arrived": count} for count in range(5))]
        shown: list[Snapshot] = []
        reading.watch(lambda snapshot: snapshot.arrived >= 2, shown.append)
        assert [snapshot.arrived for snapshot in shown] == [0, 1, 2]


def test_arrivals_are_loaded_from_the_probes_file(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    one = np.array([1], dtype=np.int64)
    save_arrivals(Arrivals(one, one + 1, one + 2, 9), file)
    with Probe(CLIENT, "out", clock=CLOCK, known_by=ByLineage()) as reading:
        worker_of(reading).answers = [SNAPSHOT, None, {"finished": str(file)}]
        shown: list[Snapshot] = []
        seen = reading.arrivals(3, 8, timeout_s=1.0, on_snapshot=shown.append, settle_s=0.5)
        assert worker_of(reading).messages == [{"first": 3, "end": 8, "timeout_s": 1.0, "settle_s": 0.5}]
    assert (seen.numbers.tolist(), seen.latency_ns.tolist(), seen.ready_ns) == ([1], [1], 9)
    assert len(shown) == 1
    assert not file.exists()


def test_a_probe_that_returns_nothing_times_out() -> None:
    with (
        Probe(CLIENT, "out", clock=CLOCK, known_by=ByLineage()) as reading,
        pytest.raises(MeasurementFailed, match="did not return"),
    ):
        reading.arrivals(0, 1, timeout_s=-20.0, on_snapshot=lambda _: None)
