from tailrace.cli.costs import cost_in_words

COST = {
    "rows": 1200,
    "calls": 400,
    "most_rows": 17,
    "python_ms": 0.0123,
    "waited_ms": 0.2,
    "trip_ms": 0.9,
    "failed": 0,
    "replaced": 0,
}


def test_costs_of_a_function() -> None:
    assert cost_in_words(COST) == (
        "1,200 rows, 3.0 rows/call, 0.012 ms/row in Python, 0.20 ms queued, 0.90 ms round trip"
    )


def test_failures_are_shown_only_if_there_are_any() -> None:
    line = cost_in_words(COST | {"failed": 2, "replaced": 3})
    assert line.endswith(", failed on 2, workers replaced 3 times")


def test_costs_of_a_function_that_was_never_called() -> None:
    assert cost_in_words(dict.fromkeys(COST, 0)).startswith("0 rows, 0.0 rows/call")
