"""Render a result as one page with all its styles, scripts and figures. It fetches nothing."""

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from tailrace.errors import OptionRefused
from tailrace.report import figures
from tailrace.report.charts import SWEEP_TITLE
from tailrace.report.lines import work_name
from tailrace.report.result import Result
from tailrace.report.view import View

STYLES = ("uplot.min.css", "report.css")
SCRIPTS = ("uplot.min.js", "charts.js", "report.js")
_IN_JSON = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Section:
    """One section: ``templates/sections/<name>.html``."""

    name: str
    title: str
    applies: Callable[[View], object]


# First the question of the study, then what every study has, then the basis.
SECTIONS = (
    Section("sweep", SWEEP_TITLE, lambda view: view.sweep_chart),
    Section("rates", "Rates", lambda view: view.ladder_chart),
    Section("engines", "Engines by work and rate", lambda view: view.matrix),
    Section("gap", "Pauses at batch boundaries", lambda view: view.result.gap and view.pauses),
    Section("lanes", "Lanes side by side", lambda view: view.groups),
    Section("ratios", "Ratios", lambda view: view.result.ratios or view.result.declined),
    Section("percentiles", "Latency by percentile", lambda view: view.percentile_charts),
    Section("time", "Latency over time", lambda view: view.timelines),
    Section("spans", "Where the time goes", lambda view: view.spans),
    Section("pauses", "Pauses at batch boundaries", lambda view: view.pauses and not view.result.gap),
    Section("delay", "Publish delay", lambda view: view.delays),
    Section("resources", "CPU and memory", lambda view: view.resources),
    Section("unavailable", "Lanes that could not be measured", lambda view: view.result.unavailable),
    Section("runs", "Every run", lambda view: view.result.runs),
    Section("notes", "Notes", lambda view: view.result.notes),
    Section("settings", "Settings", lambda view: view.all_settings),
    Section("origin", "Machine, versions and command", lambda view: view.origin),
)


def sections_of(view: View) -> list[Section]:
    """Return the sections that have data in this result."""
    return [section for section in SECTIONS if section.applies(view)]


def read_result(path: Path) -> Result:
    """Read the ``result.json`` of a benchmark.

    Raises:
        OptionRefused: There is no such file, or it is not a result.
    """
    fix = "name a folder that `tailrace bench --out` wrote"
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionRefused(f"{path} cannot be read", why=error.strerror or str(error), fix=fix) from error
    except ValueError as error:
        raise OptionRefused(f"{path} is not valid JSON", why=str(error), fix=fix) from error
    what = f"{path} is not the result of a benchmark"
    if not isinstance(result, dict) or "schema" not in result:
        raise OptionRefused(what, why="it has no key 'schema'", fix=fix)
    try:
        return Result.from_json(result)
    except (TypeError, ValueError, AttributeError) as error:
        raise OptionRefused(what, why=str(error), fix=fix) from error


def write_report(result: Result, path: Path) -> None:
    """Write the page of a result, whole or not at all.

    Args:
        result: The result.
        path: The file to write, usually ``report.html``; its folder exists.
    """
    partial = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        partial.write_text(render_report(result), encoding="utf-8", newline="\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def render_report(result: Result) -> str:
    """Return the page of a result.

    A section appears only if the result has data for it, so every study, even an incomplete one, has a page.

    Args:
        result: The result.
    """
    view = View(result)
    scripts = [_script(name) for name in SCRIPTS]
    page = _environment().get_template("page.html")
    return page.render(
        view=view,
        result=result,
        sections=sections_of(view),
        charts=embedded(view.charts),
        styles=[Markup(_asset(name)) for name in STYLES],  # noqa: S704 - our own files
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own files
        policy=_policy(scripts),
    )


def embedded(value: object) -> Markup:
    """Return JSON that is safe inside a script element: nothing in it can end the element."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    for character, escape in _IN_JSON.items():
        text = text.replace(character, escape)
    return Markup(text)  # noqa: S704 - escaped above


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which JSON lacks, by null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not figures.is_number(value) else value


def _policy(scripts: list[str]) -> str:
    """Return the security policy: no address, and no script but these."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """Return a script for the page; uPlot with its licence."""
    text = _asset(name)
    if name == "uplot.min.js":
        code = text.partition("*/")[2]
        text = f"/*! uPlot 1.6.32\n\n{_asset('uplot.LICENSE')}\n*/{code}"
    return f"\n{text.strip()}\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tailrace.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=ChainableUndefined,
    )
    environment.filters |= {
        "flat": figures.flat,
        "moment": figures.moment,
        "plain": figures.plain,
        "rate": figures.rate,
        "seconds": figures.seconds,
        "three": figures.three_figures,
        "whole": figures.count,
        "words": figures.words,
        "work": work_name,
    }
    environment.tests["figure"] = figures.is_number
    environment.globals["spread"] = figures.spread
    return environment
