from typing import Any

from tailrace.report.headline import headline_of
from tailrace.report.result import Result

from .results import bench_result, engines_result, gap_result, rates_result, sweep_result, void_result


def sentence(result: dict[str, Any]) -> str:
    headline = headline_of(Result.from_json(result))
    assert headline is not None
    return f"{headline.figure} | {headline.sentence} | {headline.basis}"


def test_real_time_against_micro_batch_with_the_spread_of_its_runs() -> None:
    result = bench_result()
    result["ratios"] = [{
        "work": "stateless", "rate_per_s": 2000, "slow": "microbatch", "fast": "realtime", "percentile": "p50",
        "median": 133.1, "low": 120.0, "high": 141.2, "runs": 3,
    }]  # fmt: skip
    result["lanes"]["realtime"]["p50_ms"] = 3.0
    result["lanes"]["microbatch"]["p50_ms"] = 399.3
    assert sentence(result) == (
        "133\N{MULTIPLICATION SIGN} | At the median, real time is 133 times faster than micro-batch, every 500 ms. | "
        "p50 3.00 ms against 399 ms, stateless, 2,000 records/s. Over 3 runs: 120\N{EN DASH}141 times."
    )


def test_another_ratio_is_the_fallback() -> None:
    result = bench_result()
    other = dict(result["ratios"][0], slow="realtime", fast="floor", median=2.3)
    result["ratios"].insert(0, other)
    assert sentence(result).split(" | ")[1].startswith("At the median, real time is")
    result["ratios"] = [other]
    assert sentence(result).split(" | ")[1] == "At the median, Kafka alone is 2.30 times faster than real time."


def test_a_ratio_below_one_is_called_slower() -> None:
    result = bench_result()
    result["ratios"] = [dict(result["ratios"][0], median=0.5, low=0.4, high=0.8)]
    assert "is 2.00 times slower than" in sentence(result)
    assert sentence(result).endswith("Over 3 runs: 1.25\N{EN DASH}2.50 times.")


def test_a_void_lane_is_not_quoted() -> None:
    assert headline_of(Result.from_json(void_result())) is None


def test_a_ratio_of_another_percentile_is_no_headline() -> None:
    result = bench_result()
    result["ratios"] = [ratio for ratio in result["ratios"] if ratio["percentile"] != "p50"]
    assert headline_of(Result.from_json(result)) is None


def test_each_study_has_its_own_headline() -> None:
    assert "pauses the output for 13" in sentence(gap_result())
    assert "in keyed aggregate, at the median" in sentence(gap_result())
    assert sentence(rates_result()).startswith("8,000/s | The highest rate that real time sustained is 8,000/s.")
    assert "The lowest p50 that micro-batch reaches" in sentence(sweep_result())
    assert sentence(engines_result()).startswith("6 of 8 | Real time has the lower p50 in 6 of 8 comparisons.")


def test_no_study_quotes_a_void_lane() -> None:
    for result in (gap_result(), sweep_result(), engines_result()):
        for lane in result["lanes"].values():
            lane["valid"] = False
        assert headline_of(Result.from_json(result)) is None


def test_no_headline_without_figures() -> None:
    assert headline_of(Result.from_json({})) is None
    assert headline_of(Result.from_json({"gap": {"intervals": [{"work": "stateless", "pauses_ms": []}]}})) is None
    assert (
        headline_of(Result.from_json({"rates": {"bound_ms": 100, "lanes": {"realtime": {"highest_per_s": None}}}}))
        is None
    )
    assert headline_of(Result.from_json({"sweep": [{"trigger_ms": 0, "key": "gone"}]})) is None
