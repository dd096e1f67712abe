"""The sections of the report in their order, and the condition of each."""

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.report.view import View


@dataclass(frozen=True)
class Section:
    """One section: ``templates/sections/<name>.html``."""

    name: str
    title: str
    applies: Callable[[View], object]


# First the question of the study, then what every study has, then the basis.
SECTIONS = (
    Section("sweep", "Latency against the trigger interval", lambda view: view.sweep_chart),
    Section("rates", "Rates", lambda view: view.ladder_chart),
    Section("engines", "Engines by work and rate", lambda view: view.matrix),
    Section("gap", "Pauses at batch boundaries", lambda view: view.result.gap and view.pauses),
    Section("lanes", "Lanes side by side", lambda view: view.groups),
    Section("ratios", "Ratios", lambda view: view.result.ratios or view.result.declined),
    Section("percentiles", "Latency by percentile", lambda view: view.percentile_charts),
    Section("time", "Latency over time", lambda view: view.timelines),
    Section("spans", "Where the time goes", lambda view: view.spans),
    Section("pauses", "Pauses at batch boundaries", lambda view: view.pauses and not view.result.gap),
    Section("delay", "Did the load keep to its plan", lambda view: view.delays),
    Section("resources", "Processor and memory", lambda view: view.resources),
    Section("unavailable", "Lanes that could not be measured", lambda view: view.result.unavailable),
    Section("runs", "Every run", lambda view: view.result.runs),
    Section("notes", "Notes", lambda view: view.result.notes),
    Section("settings", "Settings", lambda view: view.all_settings),
    Section("origin", "Machine, versions and command", lambda view: view.origin),
)


def sections_of(view: View) -> list[Section]:
    """Return the sections that have data in this result."""
    return [section for section in SECTIONS if section.applies(view)]
