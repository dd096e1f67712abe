from rich.console import Console

from tailrace.chaos.account import Account
from tailrace.chaos.journal import FaultRecord
from tailrace.chaos.result import ChaosResult
from tailrace.measure.traffic.probe import origin_number

FAULTS = [
    FaultRecord(1, "jvm", "random", 3.0, 8000, restarted=True),
    FaultRecord(2, "workers", "random", 9.0, 40, restarted=False),
    FaultRecord(3, "jvm", "random", 15.0, 9000, restarted=True),
]
ACCOUNTS = {
    "out": Account("record", 100, 120, lost=1, repeated=21, out_of_order=2, lost_origins=(origin_number(1, 17),)),
    "sums": Account("key", 7, 30, lost=0, repeated=3),
}
RESULT = ChaosResult("shop", "realtime", {"rate": 10.0}, 130, ACCOUNTS, FAULTS, starts=3, drain_ms=12)


def test_the_keys_of_the_result() -> None:
    data = RESULT.to_json()
    assert {name: data[name] for name in ("sent", "received", "lost", "repeated", "out_of_order", "kills")} == {
        "sent": 130,
        "received": 150,
        "lost": 1,
        "repeated": 24,
        "out_of_order": 2,
        "kills": 3,
    }
    assert data["recovery_ms"] == [8000, 40, 9000]
    assert data["kinds"] == {
        "jvm": {"kills": 2, "recovery_ms": [8000, 9000]},
        "workers": {"kills": 1, "recovery_ms": [40]},
    }
    assert data["outputs"]["out"]["lost_records"] == [{"partition": 1, "offset": 17}]
    assert data["outputs"]["sums"]["out_of_order"] is None


def test_the_tables_have_a_row_for_each_kind_and_topic() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(RESULT.recovery_table(), RESULT.counts_table())
    rows = [line.split() for line in captured.get().splitlines() if line.strip()]
    assert rows[1] == ["jvm", "2", "8,500", "ms", "9,000", "ms"]
    assert ["out", "100", "120", "1", "21", "2"] in rows
    assert ["sums", "7", "30", "0", "3", "-"] in rows


def test_the_verdict_counts_every_output() -> None:
    assert RESULT.verdict == "107 outputs expected, 1 lost, 24 repeated, 2 out of order"
