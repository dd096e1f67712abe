"""Count Spark's task slots after the executors have registered."""

import time
from collections.abc import Callable

from tailrace.plan.slots import Capacity

_TASKS_END_S = 3.0
"""How long the tasks of a stopped query may take to end."""
_FIRST_EXECUTOR_S = 30.0
"""How long the first executor of a cluster may take to register."""
_NEXT_EXECUTOR_S = 5.0
"""How long after one executor another may register: a cluster starts them together."""
_POLL_EVERY_S = 0.1


def await_capacity(ask: Callable[[], Capacity], required: int, *, on_cluster: bool) -> Capacity:
    """Return Spark's task slots; if too few are free, wait as long as more are to be expected.

    Args:
        ask: Asks Spark.
        required: How many the query needs.
        on_cluster: Whether executors register after the context has started.
    """
    started = grown = time.monotonic()
    capacity = ask()
    while capacity.free < required:
        if capacity.slots >= required:
            deadline = started + _TASKS_END_S
        elif not on_cluster:
            break
        else:
            deadline = grown + (_NEXT_EXECUTOR_S if capacity.slots else _FIRST_EXECUTOR_S)
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_EVERY_S)
        before, capacity = capacity, ask()
        if capacity.slots > before.slots:
            grown = time.monotonic()
    return capacity
