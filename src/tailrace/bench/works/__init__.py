"""The works: one file for each, with the DataFrame function of it and what its results must be."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from tailrace.bench.work import Work
from tailrace.bench.works import aggregate, dedupe, join, python_function, stateless, window

_MODULES: dict[Work, ModuleType] = {
    Work.STATELESS: stateless,
    Work.AGGREGATE: aggregate,
    Work.PYTHON: python_function,
    Work.WINDOW: window,
    Work.DEDUPE: dedupe,
    Work.JOIN: join,
}
SCHEMA = "id long, key string, amount double, sent_ns long"

Outputs = Sequence[Mapping[str, Any]]


def transform_of(work: Work) -> Callable[..., Any]:
    """The DataFrame function of a work."""
    transform: Callable[..., Any] = _MODULES[work].transform
    return transform


def count_wrong(work: Work, outputs: Outputs, sent: Sequence[int]) -> int:
    """How many results are not what they must be, given the numbers of the records that were sent."""
    wrong: int = _MODULES[work].count_wrong(outputs, sent)
    return wrong
