"""The headline of a report: one figure and one sentence."""

from dataclasses import dataclass
from statistics import median

from tailrace.report.figures import is_number, plain, rate, seconds, spread, three_figures
from tailrace.report.lines import work_name
from tailrace.report.result import LaneSummary, Ratio, Result


@dataclass(frozen=True)
class Headline:
    """The main figure, its sentence, and the figures behind it."""

    figure: str
    sentence: str
    basis: str


def headline_of(result: Result) -> Headline | None:
    """Return the main finding of a result, or None if there is nothing to quote."""
    for make in (_of_gap, _of_rates, _of_sweep, _of_engines, _of_ratio):
        headline = make(result)
        if headline is not None:
            return headline
    return None


def _of_ratio(result: Result) -> Headline | None:
    """Quote real time against micro-batch, or else the first ratio of valid lanes."""
    lanes = result.lanes
    best: Ratio | None = None
    for ratio in result.ratios:
        if not _counts(ratio, result):
            continue
        fast, slow = lanes.get(ratio.fast, LaneSummary()), lanes.get(ratio.slow, LaneSummary())
        if (fast.lane, slow.lane) == ("realtime", "microbatch"):
            best = ratio
            break
        best = best or ratio
    if best is None or not best.median:
        return None
    fast, slow = lanes.get(best.fast, LaneSummary()), lanes.get(best.slow, LaneSummary())
    times, low, high, than = best.median, best.low, best.high, "faster"
    if times < 1:
        than, times = "slower", 1 / times
        low, high = (1 / high if high else None), (1 / low if low else None)
    over = (
        f" Over {best.runs} runs: {spread(low, high)} times."
        if is_number(low) and is_number(high) and best.runs > 1
        else ""
    )
    setting = [work_name(best.work)] if best.work else []
    setting += [f"{plain(best.rate_per_s)} records/s"] if is_number(best.rate_per_s) else []
    return Headline(
        f"{three_figures(times)}\N{MULTIPLICATION SIGN}",
        f"At the median, {_title(fast)} is {three_figures(times)} times {than} than {_title(slow)}.",
        f"p50 {three_figures(fast.p50_ms)} ms against {three_figures(slow.p50_ms)} ms"
        f"{', ' if setting else ''}{', '.join(setting)}.{over}",
    )


def _counts(ratio: Ratio, result: Result) -> bool:
    """Return whether the ratio is of medians and both lanes are valid."""
    valid = all(result.lanes[key].valid for key in (ratio.fast, ratio.slow) if key in result.lanes)
    return valid and ratio.percentile == "p50" and is_number(ratio.median)


def _of_engines(result: Result) -> Headline | None:
    """Quote all comparisons at once, because a single one would be selective."""
    ratios = [ratio for ratio in result.ratios if _counts(ratio, result)]
    if result.study != "engines" or not ratios:
        return None
    title = _title(result.lanes.get(ratios[0].fast, LaneSummary()))
    ahead = sum((ratio.median or 0) > 1 for ratio in ratios)
    return Headline(
        f"{ahead} of {len(ratios)}",
        f"{title[:1].upper()}{title[1:]} has the lower p50 in {ahead} of {len(ratios)} comparisons.",
        "Each comparison is with one lane, in one work, at one rate. Lanes that were void or fell behind do not count.",
    )


def _of_gap(result: Result) -> Headline | None:
    intervals = [
        each
        for each in (result.gap.intervals if result.gap is not None else ())
        if each.pauses_ms and result.lanes.get(each.key, LaneSummary()).valid
    ]
    if not intervals:
        return None
    works: dict[str, list[float]] = {}
    for each in intervals:
        works.setdefault(each.work or "all works", []).extend(each.pauses_ms)
    parts = [f"{three_figures(median(pauses))} ms in {work_name(work)}" for work, pauses in works.items()]
    first = next(iter(works.values()))
    return Headline(
        f"{three_figures(median(first))} ms",
        f"A batch boundary pauses the output for {' and '.join(parts)}, at the median.",
        f"{sum(map(len, works.values())):,} boundaries, checkpoint every "
        + ", ".join(dict.fromkeys(seconds(each.checkpoint_every_s) for each in intervals))
        + ".",
    )


def _of_rates(result: Result) -> Headline | None:
    if result.rates is None:
        return None
    known = {lane: each.highest_per_s for lane, each in result.rates.lanes.items() if each.highest_per_s is not None}
    if not known:
        return None
    lane = "realtime" if "realtime" in known else max(known, key=lambda name: known[name])
    titles = {each.lane: each.title for each in result.lanes.values()}
    others = [f"{titles.get(name, name)} {rate(highest)}" for name, highest in known.items() if name != lane]
    return Headline(
        rate(known[lane]),
        f"The highest rate that {titles.get(lane, lane)} sustained is {rate(known[lane])}.",
        f"p99 below {plain(result.rates.bound_ms)} ms and no growing lag."
        + (f" Others: {', '.join(others)}." if others else ""),
    )


def _of_sweep(result: Result) -> Headline | None:
    points = [
        (each.trigger_ms, lane.p50_ms)
        for each in result.sweep or ()
        if (lane := result.lanes.get(each.key, LaneSummary())).valid and lane.p50_ms is not None
    ]
    if len(points) < 2:
        return None
    points.sort()
    (every, least), (longest, most) = min(points, key=lambda point: point[1]), points[-1]
    at = "as often as possible" if every == 0 else f"every {plain(every)} ms"
    return Headline(
        f"{three_figures(least)} ms",
        f"The lowest p50 that micro-batch reaches is {three_figures(least)} ms, with a trigger {at}.",
        f"With a trigger every {plain(longest)} ms it is {three_figures(most)} ms.",
    )


def _title(lane: LaneSummary) -> str:
    return lane.title or lane.lane
