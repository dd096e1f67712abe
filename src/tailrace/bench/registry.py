"""All lanes by name."""

from collections.abc import Iterable

from tailrace.bench.lane import Lane
from tailrace.bench.lanes import (
    continuous,
    flink,
    floor,
    kafka_streams,
    microbatch,
    pyflink,
    python_functions,
    python_stock,
    quix,
    realtime,
    realtime_stock,
)
from tailrace.errors import OptionRefused

_MODULES = (
    *(floor, microbatch, continuous, realtime_stock, realtime, python_functions, python_stock),
    *(flink, kafka_streams, quix, pyflink),
)


def all_lanes() -> dict[str, Lane]:
    """Every lane, in the order in which they are listed."""
    return {lane.name: lane for module in _MODULES for lane in module.LANES}


def lanes_named(names: Iterable[str]) -> list[Lane]:
    """The lanes of these names.

    Raises:
        OptionRefused: There is no lane of such a name.
    """
    known = all_lanes()
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        if name not in known:
            raise OptionRefused(f"there is no lane {name!r}", fix=f"one or more of: {', '.join(known)}")
    return [known[name] for name in chosen]
