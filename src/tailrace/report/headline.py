"""The one sentence that a reader takes along."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from tailrace.report.figures import is_number, plain, rate, seconds, spread, three_figures
from tailrace.report.lines import work_name


@dataclass(frozen=True)
class Headline:
    """A figure to remember, the sentence that it stands in, and what it rests on."""

    figure: str
    sentence: str
    basis: str


def headline_of(result: Mapping[str, Any]) -> Headline | None:
    """What the result says above all. None where it says nothing that could be quoted."""
    for make in (_of_gap, _of_rates, _of_sweep, _of_engines, _of_ratio):
        made = make(result)
        if made is not None:
            return made
    return None


def _of_ratio(result: Mapping[str, Any]) -> Headline | None:
    """Real time against micro-batch where there is such a ratio. A void lane is not quoted."""
    lanes = result.get("lanes") or {}
    best: Mapping[str, Any] | None = None
    for ratio in result.get("ratios") or ():
        fast, slow = lanes.get(ratio.get("fast")) or {}, lanes.get(ratio.get("slow")) or {}
        if not _counts(ratio, lanes):
            continue
        if (fast.get("lane"), slow.get("lane")) == ("realtime", "microbatch"):
            best = ratio
            break
        best = best or ratio
    if best is None or not best["median"]:
        return None
    fast, slow = lanes.get(best["fast"]) or {}, lanes.get(best["slow"]) or {}
    times, low, high, than = best["median"], best.get("low"), best.get("high"), "faster"
    if times < 1:
        than, times = "slower", 1 / times
        low, high = (1 / high if high else None), (1 / low if low else None)
    titles = [str(lane.get("title") or lane.get("lane") or "") for lane in (fast, slow)]
    figures = [three_figures(lane.get("p50_ms")) for lane in (fast, slow)]
    runs = best.get("runs") or 0
    over = f" Over {runs} runs: {spread(low, high)} times." if is_number(low) and is_number(high) and runs > 1 else ""
    where = [work_name(str(best["work"]))] if best.get("work") else []
    where += [f"{plain(best['rate_per_s'])} records/s"] if is_number(best.get("rate_per_s")) else []
    return Headline(
        f"{three_figures(times)}\N{MULTIPLICATION SIGN}",
        f"At the median, {titles[0]} is {three_figures(times)} times {than} than {titles[1]}.",
        f"p50 {figures[0]} ms against {figures[1]} ms{', ' if where else ''}{', '.join(where)}.{over}",
    )


def _counts(ratio: Mapping[str, Any], lanes: Mapping[str, Any]) -> bool:
    """Whether it is a ratio of medians, of two lanes that are valid."""
    sound = all((lanes.get(str(ratio.get(side))) or {}).get("valid", True) for side in ("fast", "slow"))
    return sound and ratio.get("percentile") == "p50" and is_number(ratio.get("median"))


def _of_engines(result: Mapping[str, Any]) -> Headline | None:
    """All comparisons at once: one of them alone would be picked."""
    lanes = result.get("lanes") or {}
    ratios = [ratio for ratio in result.get("ratios") or () if _counts(ratio, lanes)]
    if result.get("study") != "engines" or not ratios:
        return None
    fast = lanes.get(ratios[0].get("fast")) or {}
    title = str(fast.get("title") or fast.get("lane") or "")
    ahead = sum(ratio["median"] > 1 for ratio in ratios)
    return Headline(
        f"{ahead} of {len(ratios)}",
        f"{title[:1].upper()}{title[1:]} has the lower p50 in {ahead} of {len(ratios)} comparisons.",
        "A comparison is with one lane, in one work, at one rate; lanes that were void or fell behind are not counted.",
    )


def _of_gap(result: Mapping[str, Any]) -> Headline | None:
    lanes = result.get("lanes") or {}
    intervals = [
        each
        for each in (result.get("gap") or {}).get("intervals") or ()
        if each.get("pauses_ms") and (lanes.get(each.get("key")) or {}).get("valid", True)
    ]
    if not intervals:
        return None
    works: dict[str, list[float]] = {}
    for each in intervals:
        works.setdefault(str(each.get("work") or "all works"), []).extend(each["pauses_ms"])
    parts = [f"{three_figures(median(pauses))} ms in {work_name(work)}" for work, pauses in works.items()]
    first = next(iter(works.values()))
    return Headline(
        f"{three_figures(median(first))} ms",
        f"A batch boundary holds the flow up for {' and '.join(parts)}, at the median.",
        f"{sum(map(len, works.values())):,} boundaries, checkpoint every "
        + ", ".join(dict.fromkeys(seconds(each.get("checkpoint_every_s")) for each in intervals))
        + ".",
    )


def _of_rates(result: Mapping[str, Any]) -> Headline | None:
    rates = result.get("rates") or {}
    lanes = rates.get("lanes") or {}
    known = {lane: each["highest_per_s"] for lane, each in lanes.items() if is_number(each.get("highest_per_s"))}
    if not known:
        return None
    lane = "realtime" if "realtime" in known else max(known, key=lambda name: known[name])
    titles = {str(each.get("lane")): str(each.get("title")) for each in (result.get("lanes") or {}).values()}
    others = [f"{titles.get(name, name)} {rate(highest)}" for name, highest in known.items() if name != lane]
    return Headline(
        rate(known[lane]),
        f"The highest rate that {titles.get(lane, lane)} sustained is {rate(known[lane])}.",
        f"p99 below {plain(rates.get('bound_ms'))} ms and no growing lag."
        + (f" Others: {', '.join(others)}." if others else ""),
    )


def _of_sweep(result: Mapping[str, Any]) -> Headline | None:
    lanes = result.get("lanes") or {}
    points = [
        (each["trigger_ms"], lane["p50_ms"])
        for each in result.get("sweep") or ()
        if (lane := lanes.get(each.get("key")) or {}).get("valid", True) and is_number(lane.get("p50_ms"))
    ]
    if len(points) < 2:
        return None
    points.sort()
    (every, least), (longest, most) = min(points, key=lambda point: point[1]), points[-1]
    at = "as often as Spark can" if every == 0 else f"every {plain(every)} ms"
    return Headline(
        f"{three_figures(least)} ms",
        f"The lowest p50 that micro-batch reaches is {three_figures(least)} ms, with a trigger {at}.",
        f"With a trigger every {plain(longest)} ms it is {three_figures(most)} ms.",
    )
