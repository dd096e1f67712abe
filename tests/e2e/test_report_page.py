"""The report in a real Chromium: what is drawn, on every kind of screen, on paper, and without a network."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tailrace.report import write_report
from tailrace.report.result import Result

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

# Axis labels are painted, so that only the painter knows them.
LISTEN = """
window.painted = [];
const paint = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.painted.push({ text, colour: this.fillStyle, chart: this.canvas.closest(".chart")?.id });
  return paint.call(this, text, ...rest);
};
"""
INK = """
() => Object.fromEntries([...document.querySelectorAll(".chart")].map((chart) => {
  const canvas = chart.querySelector("canvas");
  if (!canvas || !canvas.width) return [chart.id, 0];
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let inked = 0;
  for (let place = 3; place < data.length; place += 4) inked += data[place] > 0;
  return [chart.id, inked / (canvas.width * canvas.height)];
}))
"""
# The contrast of each element that has text of its own, against the ground that it stands on, by WCAG's formula.
CONTRASTS = """
() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const channels = (colour) => {
    if (!known.has(colour)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      known.set(colour, [...context.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(colour);
  };
  const luminance = ([red, green, blue]) => {
    const linear = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (channels(colour)[3] === 255) return colour;
    }
    return getComputedStyle(document.body).backgroundColor;
  };
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName)) continue;
    const pair = [getComputedStyle(element).color, ground(element)];
    const [one, other] = pair.map((colour) => luminance(channels(colour)));
    found[pair.join(" on ")] = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  }
  return found;
}
"""


def _results() -> Any:
    """The made-up results of the unit tests, which are a package of their own."""
    path = Path(__file__).parents[1] / "unit" / "report" / "results.py"
    spec = spec_from_file_location("report_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RESULTS = _results()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next((path for name in NAMES if (path := shutil.which(name))), None)
    if executable is None:
        message = "no Chromium on this machine; on Debian: apt-get install chromium"
        if os.environ.get("TAILRACE_CHROMIUM") == "required":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        # A profile of its own, fresh and removed at the end, is what `launch` makes.
        launched = playwright.chromium.launch(executable_path=executable, headless=True, args=ARGUMENTS)
        yield launched
        launched.close()


class Reader:
    """A page that is open, and everything that it said or asked for."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.goto(address)

    def ink(self) -> dict[str, float]:
        """How much of each chart is painted."""
        # What is painted is painted before the next frame.
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return dict(self.page.evaluate(INK))

    def painted(self, chart: str) -> set[str]:
        """The words in a chart."""
        return {each["text"] for each in self.page.evaluate("window.painted") if each["chart"] == chart}


Open = Callable[..., Reader]


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    contexts: list[BrowserContext] = []

    def open_one(result: dict[str, Any], *, width: int = 1200, **options: Any) -> Reader:
        path = tmp_path / "report.html"
        write_report(Result.from_json(result), path)
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        context.add_init_script(LISTEN)
        contexts.append(context)
        return Reader(context, path.as_uri())

    yield open_one
    for context in contexts:
        context.close()


@pytest.mark.parametrize("study", RESULTS.STUDIES)
def test_every_chart_is_drawn_without_a_word_or_a_request(open_report: Open, study: str) -> None:
    reader = open_report(RESULTS.STUDIES[study]())
    for summary in reader.page.locator("summary").all():
        summary.click()
    reader.page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every((c) => c.querySelector('canvas'))"
    )
    ink = reader.ink()
    assert len(ink) >= 4
    assert {name: part for name, part in ink.items() if not 0.01 < part < 0.6} == {}
    assert reader.complaints == []
    assert [url for url in reader.requests if not re.fullmatch(r"file://.*/report\.html", url)] == []
    assert len(reader.requests) == 1


def test_axes_and_lines_have_their_names(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result())
    reader.ink()
    assert {"percentile", "latency, ms", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "1", "10", "100", "Kafka alone",
            "micro-batch, every 500 ms", "real time"} <= reader.painted("chart-percentiles-0")  # fmt: skip
    assert {"seconds into the window", "0", "30", "60", "1", "100", "p50", "p99", "max"} <= reader.painted(
        "chart-time-0-2"
    )


def test_the_figures_under_the_cursor_are_shown(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result())
    chart = reader.page.locator("#chart-time-0-2")
    chart.scroll_into_view_if_needed()
    chart.locator(".u-over").hover(position={"x": 300, "y": 40})
    readout = reader.page.locator("figure:has(#chart-time-0-2) .readout").inner_text()
    assert re.fullmatch(r"[\d.]+ s: max [\d.,]+ · p99 [\d.,]+ · p50 [\d.,]+ ms", readout)


@pytest.mark.parametrize("study", ["bench", "void", "engines"])
def test_light_and_dark_differ_and_both_can_be_read(open_report: Open, study: str) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        reader = open_report(RESULTS.STUDIES[study](), color_scheme=scheme)
        grounds[scheme] = reader.page.evaluate("getComputedStyle(document.body).backgroundColor")
        contrasts = reader.page.evaluate(CONTRASTS)
        assert len(contrasts) > 3
        assert {pair: round(contrast, 2) for pair, contrast in contrasts.items() if contrast < 4.5} == {}
    assert grounds["light"] == "rgb(255, 255, 255)"
    assert grounds["dark"] != grounds["light"]


def test_charts_follow_the_colours_of_the_screen(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result(), color_scheme="light")
    assert all(reader.ink().values())
    light = {each["colour"] for each in reader.page.evaluate("window.painted")}
    reader.page.evaluate("window.painted = []")
    reader.page.emulate_media(color_scheme="dark")
    assert all(reader.ink().values())
    dark = {each["colour"] for each in reader.page.evaluate("window.painted")}
    assert dark
    assert light.isdisjoint(dark)


def test_paper_is_white_and_has_the_charts(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result(), color_scheme="dark")
    assert all(reader.ink().values())
    reader.page.evaluate("window.painted = []")
    reader.page.emulate_media(media="print", color_scheme="dark")
    ink = reader.ink()
    assert {name: part for name, part in ink.items() if part < 0.01} == {}
    dots = reader.page.evaluate("document.querySelector('#chart-percentiles-0 canvas').width")
    assert dots > 2000, "as sharp as paper wants it"
    assert reader.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    muted = reader.page.evaluate("getComputedStyle(document.body).getPropertyValue('--muted')")
    assert muted in {each["colour"] for each in reader.page.evaluate("window.painted")}, "dark ink on white"
    assert reader.page.locator("nav").is_hidden()
    assert {pair: value for pair, value in reader.page.evaluate(CONTRASTS).items() if value < 4.5} == {}
    reader.page.emulate_media(media="screen", color_scheme="dark")
    assert all(reader.ink().values())
    pdf = reader.page.pdf(format="A4", print_background=True)
    assert pdf.count(b"/Subtype /Image") >= len(ink)
    assert reader.complaints == []


@pytest.mark.parametrize("study", RESULTS.STUDIES)
def test_a_phone_scrolls_tables_and_never_the_page(open_report: Open, study: str) -> None:
    reader = open_report(RESULTS.STUDIES[study](), width=360)
    reader.ink()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 360
    widths = reader.page.evaluate("[...document.querySelectorAll('.chart canvas')].map((c) => c.clientWidth)")
    assert all(200 < width <= 360 for width in widths)
    assert reader.page.evaluate("[...document.querySelectorAll('.wide')].some((e) => e.scrollWidth > e.clientWidth)")


def test_a_window_that_changes_its_width_gets_charts_of_that_width(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result(), width=1200)
    reader.ink()
    reader.page.set_viewport_size({"width": 500, "height": 900})
    fits = "(chart) => chart.querySelector('canvas').clientWidth <= chart.clientWidth"
    reader.page.wait_for_function(f"() => [...document.querySelectorAll('.chart')].every({fits})")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 500
    assert all(reader.ink().values())


def test_without_scripts_every_table_is_there(open_report: Open) -> None:
    reader = open_report(RESULTS.bench_result(), java_script_enabled=False)
    page = reader.page
    assert page.get_by_role("heading", level=1).inner_text() == "Latency benchmark, profile full"
    assert page.locator("table").count() >= 8
    assert all(table.is_visible() for table in page.locator("table").all())
    assert page.get_by_role("row", name="real time").first.is_visible()
    assert page.locator(".chart").first.is_hidden()
    assert page.locator("figure p.note").first.is_visible()


def test_keys_and_screen_readers_find_their_way(open_report: Open) -> None:
    page = open_report(RESULTS.bench_result()).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#lanes"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.locator(".wide:not([tabindex='0'][role=region][aria-label])").count() == 0
    assert page.get_by_role("img", name="Latency over time, real time").count() == 1
    assert page.get_by_role("region", name="Lanes side by side").count() >= 1
    assert page.locator("table th:not([scope])").count() == 0
    levels = [int(heading.evaluate("e => e.tagName[1]")) for heading in page.locator("h1, h2, h3").all()]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_a_value_is_never_run(open_report: Open) -> None:
    nasty = "</script><script>document.title='run'</script><img src=x onerror=\"alert('run')\">"
    result = RESULTS.bench_result()
    result["lanes"]["realtime"]["title"] = nasty
    result["notes"] = [nasty]
    reader = open_report(result)
    assert all(reader.ink().values())
    assert nasty in reader.page.inner_text("#notes")
    assert reader.page.title().startswith("Valid: ")
    assert reader.page.locator("img").count() == 0
    assert reader.complaints == []
    assert len(reader.requests) == 1
