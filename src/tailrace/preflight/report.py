"""The findings of all checks, as one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tailrace.pipeline import Mode
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.slots import Slots
from tailrace.preflight.finding import Finding, Severity


class When(StrEnum):
    """When a record waits."""

    RECORD = "every record"
    CHECKPOINT = "at a checkpoint"
    CRASH = "after a crash"


@dataclass(frozen=True)
class Link:
    """A step in a record's path, and about how long a record may wait there."""

    name: str
    ms: float
    source: str
    """The setting or the measurement behind the figure."""
    when: When = When.RECORD


@dataclass(frozen=True)
class CheckReport:
    """The result of ``tr.check`` and ``tailrace check``.

    Attributes:
        name: The query's name.
        mode: The mode that it was checked for.
        slots: The tasks of each stage; None if they could not be counted.
        available: The free task slots of the Spark that would run it.
        findings: The worst first.
        latency: The links of the latency chain, in milliseconds, as far as the settings say.
        checkpoint: The modes that can continue its checkpoint, and the number of shuffle partitions that it keeps, as a
            sentence; empty if it has none yet.
        python: What each of its Python functions cost in the last run; empty if it has not run yet.
        runs_in_microbatch: Whether Spark accepts it in micro-batch.
        why_microbatch: With ``mode="auto"``: why it runs in micro-batch: the errors in real time.
        reads: The partitions that each source task reads in real time, in the order of the tasks; empty if unknown.
        delivery: What holds after a crash; None if that is not known.
    """

    name: str
    mode: Mode
    slots: Slots | None
    available: int
    findings: Sequence[Finding]
    latency: Sequence[Link] = ()
    checkpoint: str = ""
    python: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    runs_in_microbatch: bool = True
    why_microbatch: Sequence[Finding] = ()
    reads: Sequence[str] = ()
    delivery: DeliveryPlan | None = None

    @property
    def ok(self) -> bool:
        """Whether the query would run and process everything."""
        return not self.errors

    @property
    def errors(self) -> set[str]:
        """The codes of the errors."""
        return {finding.code for finding in self.findings if finding.severity is Severity.ERROR}

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        stages = list(self.slots.stages) if self.slots is not None else []
        required = self.slots.required if self.slots is not None else None
        return {
            "ok": self.ok,
            "name": self.name,
            "mode": str(self.mode),
            "slots": {"stages": stages, "required": required, "available": self.available},
            "reads": [task.split(", ") for task in self.reads],
            "latency": [
                {"link": link.name, "ms": link.ms, "when": str(link.when), "from": link.source} for link in self.latency
            ],
            "checkpoint": self.checkpoint,
            "delivery": _delivery(self.delivery),
            "python": {name: dict(cost) for name, cost in self.python.items()},
            "findings": [finding.as_json() for finding in self.findings],
            "why_microbatch": [finding.as_json() for finding in self.why_microbatch],
        }


def _delivery(plan: DeliveryPlan | None) -> dict[str, Any] | None:
    if plan is None:
        return None
    return {
        "effectively_once": plan.effectively_once,
        "keeps_progress": plan.keeps_progress,
        "reason": plan.reason,
        "where": plan.where,
        "fix": plan.fix,
    }


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings by severity; those of one severity keep their order."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
