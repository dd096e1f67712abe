"""The result of a chaos run, and its table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tailrace.chaos.account import Account, totals
from tailrace.chaos.journal import FaultRecord
from tailrace.measure.traffic.probe import OFFSET_BITS
from tailrace.version import VERSION


@dataclass(frozen=True)
class ChaosResult:
    """What a pipeline did under faults.

    Attributes:
        pipeline: Its name.
        mode: Its mode.
        settings: The options of the run.
        sent: Records in the source topic.
        accounts: The outputs of each topic.
        faults: The faults and the recoveries from them.
        starts: How often the pipeline was started.
        drain_ms: From the last record sent to the last output; None if the run was interrupted meanwhile.
    """

    pipeline: str
    mode: str
    settings: Mapping[str, Any]
    sent: int
    accounts: Mapping[str, Account]
    faults: Sequence[FaultRecord]
    starts: int
    drain_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Return it as data."""
        counted = totals(self.accounts.values())
        return {
            "pipeline": self.pipeline,
            "mode": self.mode,
            "sent": self.sent,
            "expected": counted.expected,
            "received": counted.received,
            "lost": counted.lost,
            "repeated": counted.repeated,
            "out_of_order": counted.out_of_order,
            "unexpected": counted.unexpected,
            "changed": counted.changed,
            "kills": len(self.faults),
            "recovery_ms": [each.recovery_ms for each in self.faults],
            "drain_ms": self.drain_ms,
            "starts": self.starts,
            "kinds": {
                kind: {"kills": len(times), "recovery_ms": times} for kind, times in self.recoveries_ms().items()
            },
            "faults": [asdict(each) for each in self.faults],
            "outputs": {topic: _as_json(each) for topic, each in self.accounts.items()},
            "settings": dict(self.settings),
            "version": VERSION,
        }

    @property
    def verdict(self) -> str:
        """What happened to the outputs, as a sentence."""
        counted = totals(self.accounts.values())
        parts = [
            f"{counted.expected:,} outputs expected",
            f"{counted.lost:,} lost",
            f"{counted.repeated:,} repeated",
            f"{counted.out_of_order:,} out of order",
        ]
        if counted.unexpected:
            parts.append(f"{counted.unexpected:,} not in the undisturbed run")
        if counted.changed:
            parts.append(f"{counted.changed:,} records with other contents")
        return ", ".join(parts)

    @property
    def lost(self) -> int:
        """How many outputs were lost."""
        return totals(self.accounts.values()).lost

    def recoveries_ms(self) -> dict[str, list[int]]:
        """Return the recovery times by kind of fault."""
        kinds: dict[str, list[int]] = {}
        for each in self.faults:
            kinds.setdefault(each.fault, []).append(each.recovery_ms)
        return kinds

    def counts_table(self) -> Table:
        """Return what happened to the outputs of each topic."""
        names = ("expected", "received", "lost", "repeated", "out of order")
        table = _table("outputs in", names)
        for topic, each in self.accounts.items():
            order = "-" if each.out_of_order is None else f"{each.out_of_order:,}"
            numbers = (each.expected, each.received, each.lost, each.repeated)
            table.add_row(topic, *(f"{number:,}" for number in numbers), order)
        return table

    def recovery_table(self) -> Table:
        """Return the recovery times of each kind of fault."""
        table = _table("fault", ("kills", "recovery, median", "longest"))
        for kind, times in self.recoveries_ms().items():
            table.add_row(kind, f"{len(times)}", f"{statistics.median(times):,.0f} ms", f"{max(times):,} ms")
        return table


def _as_json(counted: Account) -> dict[str, Any]:
    data = asdict(counted)
    origins = data.pop("lost_origins")
    low = (1 << OFFSET_BITS) - 1
    return {**data, "lost_records": [{"partition": each >> OFFSET_BITS, "offset": each & low} for each in origins]}


def _table(first: str, others: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
