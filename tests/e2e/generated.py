"""Generated inputs for tests that run every one of them on Spark.

``TAILRACE_EXAMPLES`` sets how many for each; `make soak` takes many.
"""

import os

from hypothesis import HealthCheck, Phase, settings

INPUTS = int(os.environ.get("TAILRACE_EXAMPLES", "1"))
SOAK = INPUTS > 1
"""Whether every kind of a thing is tried everywhere; otherwise a few of them."""

on_spark = settings(
    max_examples=INPUTS,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # without shrinking: every try takes seconds
    suppress_health_check=list(HealthCheck),
)
