"""Functions of Spark's worker that take plain batches, too."""

from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MappingProxyType
from typing import Any

from tailrace.worker.plain import in_arrow
from tailrace.worker.series import PlainFrames, PlainResults, conversions, verification
from tailrace.worker.values import PlainArrow, values

_CONF = "runner_conf"
"""What a worker's functions call their configuration."""


def with_short_ways(evaluate: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """A function of Spark's worker that takes plain batches, too; the worker's own module stays as it is."""
    from pyspark.util import PythonEvalType

    # The kinds that need no pandas need not wait for it to be imported.
    if kind in (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF):
        short = with_replaced(evaluate, conversions(PlainResults()))
    elif kind == PythonEvalType.SQL_MAP_PANDAS_ITER_UDF:
        converts = conversions(PlainFrames())
        short = with_replaced(evaluate, {**converts, **verification()}) or with_replaced(evaluate, converts)
    elif kind == PythonEvalType.SQL_ARROW_BATCHED_UDF:
        short = with_replaced(evaluate, values(), {"pa": PlainArrow()})
    else:
        return evaluate
    return short or _in_arrow_alone(evaluate)


def with_replaced(
    evaluate: Callable[..., Any], names: Mapping[str, Any], around: Mapping[str, Any] = MappingProxyType({})
) -> Callable[..., Any] | None:
    """A copy of a function for which some names mean something else, if it uses all of them.

    They are of its module, or of the function around it. What it asks of its configuration is known.
    """
    if not isinstance(evaluate, FunctionType) or not names.keys() <= _names_in(evaluate.__code__):
        return None
    cells = dict(zip(evaluate.__code__.co_freevars, evaluate.__closure__ or (), strict=True))
    if not around.keys() <= cells.keys():
        return None
    cells |= {name: CellType(meaning) for name, meaning in around.items()}
    if _CONF in cells:
        cells[_CONF] = CellType(Settled(cells[_CONF].cell_contents))
    return FunctionType(
        evaluate.__code__,
        {**evaluate.__globals__, **names},
        evaluate.__name__,
        evaluate.__defaults__,
        tuple(cells.values()),
    )


class Settled:
    """A configuration that does not change: Spark's reads what it is asked for every time."""

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        for name, kind in vars(type(conf)).items():
            if isinstance(kind, property):
                setattr(self, name, getattr(conf, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conf, name)


def _names_in(code: CodeType) -> set[str]:
    inner = [_names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*inner)


def _in_arrow_alone(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a worker that converts in another way, whatever comes."""
    return lambda split, batches: evaluate(split, (in_arrow(batch, made=False) for batch in batches))
