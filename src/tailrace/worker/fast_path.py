"""Lets functions of Spark's worker take plain batches, too."""

from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, MappingProxyType
from typing import Any

from tailrace.worker.pandas_conversion import FrameConverter, SeriesConverter, cached_verification, pandas_conversions
from tailrace.worker.plain import to_arrow
from tailrace.worker.value_conversion import PyArrowProxy, value_conversions

_CONF = "runner_conf"
"""The name of the configuration in the functions of Spark's worker."""


def with_fast_path(evaluate: Callable[..., Any], eval_type: int) -> Callable[..., Any]:
    """Return a copy of a function of Spark's worker that takes plain batches, too; Spark's module is not changed."""
    from pyspark.util import PythonEvalType

    # Only the branches that need pandas import it.
    if eval_type in (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF):
        fast = with_names_replaced(evaluate, pandas_conversions(SeriesConverter()))
    elif eval_type == PythonEvalType.SQL_MAP_PANDAS_ITER_UDF:
        names = pandas_conversions(FrameConverter())
        fast = with_names_replaced(evaluate, {**names, **cached_verification()}) or with_names_replaced(evaluate, names)
    elif eval_type == PythonEvalType.SQL_ARROW_BATCHED_UDF:
        fast = with_names_replaced(evaluate, value_conversions(), {"pa": PyArrowProxy()})
    else:
        return evaluate
    return fast or _always_in_arrow(evaluate)


def with_names_replaced(
    evaluate: Callable[..., Any],
    module_names: Mapping[str, Any],
    closure_names: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., Any] | None:
    """Return a copy of a function in which some names of its module and closure have other values.

    None if the function does not use all of these names. The copy reads its configuration once.
    """
    if not isinstance(evaluate, FunctionType) or not module_names.keys() <= _names_in(evaluate.__code__):
        return None
    cells = dict(zip(evaluate.__code__.co_freevars, evaluate.__closure__ or (), strict=True))
    if not closure_names.keys() <= cells.keys():
        return None
    cells |= {name: CellType(value) for name, value in closure_names.items()}
    if _CONF in cells:
        cells[_CONF] = CellType(CachedConf(cells[_CONF].cell_contents))
    return FunctionType(
        evaluate.__code__,
        {**evaluate.__globals__, **module_names},
        evaluate.__name__,
        evaluate.__defaults__,
        tuple(cells.values()),
    )


class CachedConf:
    """A configuration whose properties are read once; Spark's parses a value at every access."""

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        for name, member in vars(type(conf)).items():
            if isinstance(member, property):
                setattr(self, name, getattr(conf, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conf, name)


def _names_in(code: CodeType) -> set[str]:
    inner = [_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return {*code.co_names}.union(*inner)


def _always_in_arrow(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that converts plain batches to Arrow, for a version of Spark's worker that is not known."""
    return lambda split, batches: evaluate(split, (to_arrow(batch, nan_is_null=False) for batch in batches))
