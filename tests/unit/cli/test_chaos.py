"""What `tailrace chaos` says and ends with, with nothing run. Real runs: tests/e2e."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.chaos import run as module
from tailrace.chaos.options import ChaosOptions, Fault, FaultTiming
from tailrace.chaos.result import ChaosResult
from tailrace.cli.app import _run
from tailrace.measure.traffic.records import Generated

from ..chaos.test_result import ACCOUNTS, RESULT

Capture = pytest.CaptureFixture[str]


class FakeRun:
    """A run that takes no time."""

    def __init__(self) -> None:
        self.result = replace(RESULT, accounts={"out": replace(ACCOUNTS["out"], lost=0)})
        self.given: list[Any] = []

    def __call__(self, spec: str, records: Any, options: ChaosOptions, screen: Any, folder: Path) -> ChaosResult:
        self.given = [spec, records, options, folder]
        screen.say("fault 1 of 1")
        return self.result

    @property
    def options(self) -> ChaosOptions:
        options = self.given[2]
        assert isinstance(options, ChaosOptions)
        return options


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRun:
    (tmp_path / "orders.py").write_text("def order(number):\n    return {'id': number}\n")
    fake = FakeRun()
    monkeypatch.setattr(module, "run_chaos", fake)
    return fake


def chaos(*arguments: str) -> int:
    return _run(["chaos", "shop.py", "--generator", "orders.py:order", *arguments])


def test_the_result_is_data_on_standard_output(fake: FakeRun, capsys: Capture) -> None:
    assert chaos("--json", "--out", "here") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == fake.result.to_json()
    assert "fault 1 of 1" in printed.err
    spec, records, _, folder = fake.given
    assert spec == "shop.py"
    assert isinstance(records, Generated)
    assert folder == Path("here")


def test_options_reach_the_run(fake: FakeRun) -> None:
    arguments = ["--kills", "4", "--fault", "jvm,both", "--at", "restart", "--rate", "50", "--seconds", "9"]
    more = ["--mode", "microbatch", "--topics", "a, b", "--outage", "3", "--partitions", "3", "--conf", "spark.x=1"]
    assert chaos(*arguments, *more) == 0
    assert fake.options == ChaosOptions(
        kills=4,
        faults=(Fault.JVM, Fault.BOTH),
        at=FaultTiming.RESTART,
        rate=50,
        seconds=9,
        outage_s=3,
        partitions=3,
        topics=("a", "b"),
        mode="microbatch",
        conf={"spark.x": "1"},
    )


def test_a_person_gets_tables_and_the_place_of_the_data(fake: FakeRun, capsys: Capture) -> None:
    assert chaos("--out", "here") == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "130 records sent; 100 outputs expected, 0 lost, 21 repeated, 2 out of order" in printed.err
    assert "here/result.json" in printed.err


def test_a_loss_fails_the_command(fake: FakeRun) -> None:
    fake.result = RESULT
    assert chaos() == 1


@pytest.mark.parametrize("wrong", [["--fault", "power"], ["--at", "noon"], ["--master", "spark://10.1.1.1:7077"]])
def test_an_option_that_cannot_work_is_refused(fake: FakeRun, wrong: list[str]) -> None:
    assert chaos(*wrong) == 2
    assert fake.given == []


def test_delivery_and_progress_are_those_of_the_pipeline_under_test(fake: FakeRun) -> None:
    assert chaos("--delivery", "at-least-once", "--progress-every", "200ms") == 0
    assert (fake.options.delivery, fake.options.progress_every) == ("at-least-once", "200ms")
