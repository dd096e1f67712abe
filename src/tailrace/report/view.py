"""A result arranged for the templates."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tailrace.report import charts, tables
from tailrace.report.figures import is_number, moment, plain, seconds
from tailrace.report.headline import Headline, headline_of
from tailrace.report.lines import Group, Line, groups_of
from tailrace.report.result import Result

MOST_CHARTS_AT_ONCE = 12
"""With more charts over time, the page folds them."""
_STUDIES = {
    "bench": "Latency benchmark",
    "sweep": charts.SWEEP_TITLE,
    "rates": "The highest sustained rate",
    "gap": "The pause at a batch boundary",
    "engines": "Engines side by side",
    "pipeline": "Latency of a pipeline",
}


@dataclass(frozen=True)
class View:
    """One result."""

    result: Result

    @property
    def valid(self) -> bool:
        """Whether the result is valid."""
        return self.result.valid

    @property
    def assurance(self) -> str:
        """A sentence about the runs of a valid result."""
        runs = self.result.runs
        behind = sum(run.fell_behind for run in runs)
        void = sum(not run.valid and not run.fell_behind for run in runs)
        sentences = [f"{behind} of {len(runs)} runs could not keep up with the load"] if behind else []
        sentences += [f"{void} of {len(runs)} are void, with the reason at each"] if void else []
        if sentences:
            return f"{', '.join(sentences)}; the others passed every check."
        return f"All {len(runs)} runs passed every check." if len(runs) > 1 else "The run passed every check."

    @property
    def title(self) -> str:
        """The title of the page."""
        study, profile = self.result.study or "bench", self.result.profile
        return _STUDIES.get(study, study) + (f", profile {profile}" if profile else "")

    @property
    def setting(self) -> str:
        """The load in a sentence."""
        chosen = self.result.settings
        rates = {group.rate_per_s for group in self.groups}
        said: list[tuple[str, Callable[[float], str]]] = [
            ("rate_per_s", lambda value: f"{plain(value)} records/s" if len(rates) < 2 else ""),
            ("payload_bytes", lambda value: f"{plain(value)} bytes each"),
            ("partitions", lambda value: f"{plain(value)} partition{'s' if value != 1 else ''}"),
            ("seconds", lambda value: f"{seconds(value)} measured"),
            ("warmup_s", lambda value: f"{seconds(value)} of warm-up"),
            ("runs", lambda value: f"{plain(value)} run{'s' if value != 1 else ''} per lane"),
        ]
        return ", ".join(text for key, say in said if is_number(chosen.get(key)) and (text := say(chosen[key])))

    @cached_property
    def headline(self) -> Headline | None:
        """The headline."""
        return headline_of(self.result)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of lanes that can be compared."""
        return groups_of(self.result)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """All lanes."""
        return tuple(line for group in self.groups for line in group.lines)

    @cached_property
    def by_key(self) -> dict[str, Line]:
        """All lanes by their keys."""
        return {line.key: line for line in self.lines}

    @property
    def merges(self) -> bool:
        """Whether some lane emitted one result for several records."""
        return any(line.lane.merged for line in self.lines)

    @cached_property
    def styles(self) -> list[Line]:
        """One lane for each style."""
        return list({line.style: line for line in reversed(self.lines)}.values())[::-1]

    def label(self, key: str) -> str:
        """Return the label of a lane."""
        return self.by_key[key].label if key in self.by_key else key

    def fault(self, *keys: str) -> str:
        """Return why figures of these lanes must not be quoted."""
        return next((fault for key in keys if key in self.by_key and (fault := self.by_key[key].fault)), "")

    def full_label(self, key: str) -> str:
        """Return the label of a lane, with its group if there are several."""
        match = next(((group, line) for group in self.groups for line in group.lines if line.key == key), None)
        if match is None:
            return key
        group, line = match
        return f"{line.label}, {group.title}" if len(self.groups) > 1 else line.label

    def title_of(self, name: str) -> str:
        """Return the title of the lane of this name."""
        return next((line.lane.title or name for line in self.lines if line.lane.lane == name), name)

    @cached_property
    def all_settings(self) -> dict[str, Mapping[str, Any]]:
        """The settings of the benchmark, its clients and each lane, by owner."""
        by_owner: dict[str, Mapping[str, Any]] = {"the benchmark": self.result.settings}
        by_owner |= {f"the {name}": values for name, values in self.result.clients.items()}
        for group in self.groups:
            for line in group.lines:
                own = line.lane.settings
                # A lane usually has the same settings in all groups; different ones are listed apart.
                name = line.label if by_owner.get(line.label, own) == own else f"{line.label}, {group.title}"
                by_owner[name] = own
        return {name: values for name, values in by_owner.items() if values}

    @property
    def origin(self) -> dict[str, Any]:
        """The tool, commit, study and time of the result."""
        result = self.result
        known = {
            "tool": result.tool,
            "commit": result.commit,
            "study": result.study,
            "profile": result.profile,
            "schema": result.schema,
        }
        when = {"started": moment(result.started)} if result.started else {}
        took = {"took": seconds(result.took_s)} if is_number(result.took_s) else {}
        return {name: value for name, value in known.items() if value is not None} | when | took

    @property
    def machine(self) -> dict[str, Any]:
        """The machine, as far as it is known."""
        known = asdict(self.result.machine) if self.result.machine is not None else {}
        return {name: value for name, value in known.items() if value is not None}

    @cached_property
    def percentile_charts(self) -> list[tuple[Group, dict[str, Any]]]:
        """A chart per group that has curves."""
        pairs = ((group, charts.percentile_chart(number, group)) for number, group in enumerate(self.groups))
        return [(group, chart) for group, chart in pairs if chart is not None]

    @cached_property
    def timelines(self) -> list[tuple[Group, list[dict[str, Any]]]]:
        """The charts over time of each group that has them."""
        pairs = ((group, charts.timeline_charts(number, group)) for number, group in enumerate(self.groups))
        return [(group, several) for group, several in pairs if several]

    @property
    def many_timelines(self) -> bool:
        """Whether there are too many to show at once."""
        return sum(len(several) for _, several in self.timelines) > MOST_CHARTS_AT_ONCE

    @cached_property
    def sweep_chart(self) -> dict[str, Any] | None:
        """Latency against the trigger interval."""
        return charts.sweep_chart(self.result, self.lines)

    @cached_property
    def ladder_chart(self) -> dict[str, Any] | None:
        """Latency against the rate."""
        return charts.ladder_chart(self.result, self.lines)

    @property
    def charts(self) -> dict[str, dict[str, Any]]:
        """Every chart of the page by its id."""
        several = [self.sweep_chart, self.ladder_chart, *(chart for _, chart in self.percentile_charts)]
        several += [chart for _, timelines in self.timelines for chart in timelines]
        return {chart["id"]: chart for chart in several if chart is not None}

    @cached_property
    def spans(self) -> list[tables.SpanRow]:
        """The spans of a record's latency."""
        return tables.span_rows(self.lines)

    @cached_property
    def delays(self) -> list[tables.DelayRow]:
        """The publish delay of the load."""
        return tables.delay_rows(self.lines)

    @cached_property
    def resources(self) -> list[tables.ResourceRow]:
        """CPU and memory."""
        return tables.resource_rows(self.lines)

    @cached_property
    def processes(self) -> list[str]:
        """The processes of all rows."""
        return list(dict.fromkeys(name for row in self.resources for name in row.processes))

    @cached_property
    def pauses(self) -> list[tables.PauseRow]:
        """The pauses at batch boundaries, or the intervals of a study of them."""
        return tables.gap_rows(self.result, self.lines) or tables.pause_rows(self.lines)

    @cached_property
    def parts(self) -> list[str]:
        """The parts of all pauses."""
        return tables.part_names(self.pauses)

    @property
    def longest(self) -> float:
        """The longest pause by the sum of its parts: the length of a full bar."""
        return max((sum(row.parts.values()) for row in self.pauses), default=0)

    @cached_property
    def matrix(self) -> tables.Matrix | None:
        """Lanes against works and rates, in the study of engines."""
        return tables.matrix_of(self.groups) if self.result.study == "engines" and self.groups else None
