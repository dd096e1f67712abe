"""Combinations of the values of several parameters: half of them in `make test`, all of them in `make soak-watch`.

``TAILRACE_WAITS`` asks for all.
"""

import itertools
import os
from collections.abc import Sequence
from typing import Any

ALL = int(os.environ.get("TAILRACE_WAITS", "2")) > 2
MODES = ("microbatch", "realtime")


def combined(*parameters: Sequence[Any], odd: bool = False) -> list[tuple[Any, ...]]:
    """Return combinations with each value of each parameter; of three or more parameters, with each pair of values.

    Args:
        parameters: The values of each, two at least.
        odd: Return the other half, so that two tests together have every combination.
    """
    numbered = itertools.product(*(list(enumerate(values)) for values in parameters))
    return [
        tuple(value for _, value in each) for each in numbered if ALL or sum(number for number, _ in each) % 2 == odd
    ]
