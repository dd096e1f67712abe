"""Describes exceptions of the user's functions."""

import functools
import inspect
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OWN_FOLDER = str(Path(__file__).parent)


class FunctionFailed(Exception):
    """An exception that is not about a row; it ends the worker with the user's own traceback."""

    @classmethod
    def from_exception(cls, name: str, function: Callable[..., Any] | None, raised: BaseException) -> "FunctionFailed":
        """Return an exception with the user's part of another one's traceback."""
        return cls(json.loads(describe_failure(name, function, raised))["traceback"])


def describe_failure(name: str, function: Callable[..., Any] | None, raised: BaseException) -> str:
    """Return a failure as JSON for the engine: the function, the error, and the user's part of the traceback.

    If none of the user's lines raised it, for example for a result of the wrong length, the traceback contains the
    definition of the function instead.
    """
    trace = traceback.TracebackException.from_exception(raised, limit=-30)
    each: traceback.TracebackException | None = trace
    while each is not None:
        each.stack = traceback.StackSummary.from_list([frame for frame in each.stack if is_user_file(frame.filename)])
        each = each.__cause__ or each.__context__
    if all(is_library_file(frame.filename) for frame in trace.stack):
        definition = _definition(function)
        if definition is not None:
            trace.stack.insert(0, definition)
    message = "".join(trace.format_exception_only()).strip().splitlines()
    own = [frame for frame in trace.stack if not is_library_file(frame.filename)] or trace.stack
    line = f" ({Path(own[-1].filename).name} line {own[-1].lineno})" if own else ""
    return json.dumps(
        {
            "function": name,
            "error": f"{message[-1] if message else ''}{line}"[:2000],
            "traceback": "".join(trace.format())[-20000:],
        }
    )


def is_library_file(file: str) -> bool:
    """Return whether a file belongs to a library: the user's line that causes an exception is often far above it."""
    libraries = ("site-packages", "dist-packages", "pyspark.zip", "<frozen", str(Path(os.__file__).parent))
    return file.endswith((".pyx", ".pxi")) or any(part in file for part in libraries)


def _definition(function: Callable[..., Any] | None) -> traceback.FrameSummary | None:
    """Return where the user defined a function, if that is known."""
    while isinstance(function, functools.partial):
        function = function.func
    if function is None:
        return None
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:  # an object with __call__
        code = getattr(inspect.getattr_static(type(function), "__call__", None), "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return None
    return traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)


def is_user_file(file: str) -> bool:
    """Return whether a file is part of neither this package nor PySpark."""
    import pyspark

    return not file.startswith((_OWN_FOLDER, str(Path(pyspark.__file__).parent) + os.sep))
