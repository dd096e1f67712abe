"""What went wrong in a user's function, as an answer."""

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
    """Ends a worker with the user's own traceback: no row has to do with it."""

    @classmethod
    def by(cls, name: str, function: Callable[..., Any] | None, raised: BaseException) -> "FunctionFailed":
        """What a function raised."""
        return cls(json.loads(described(name, function, raised))["traceback"])


def described(name: str, function: Callable[..., Any] | None, raised: BaseException) -> str:
    """What went wrong, for the engine: which function, the exception, and the user's part of the traceback.

    If none of the user's lines raised it, as when a result has the wrong length, the traceback has the function's
    definition instead.
    """
    told = traceback.TracebackException.from_exception(raised, limit=-30)
    each: traceback.TracebackException | None = told
    while each is not None:
        each.stack = traceback.StackSummary.from_list([frame for frame in each.stack if is_users(frame.filename)])
        each = each.__cause__ or each.__context__
    if all(is_librarys(frame.filename) for frame in told.stack) and (defined := _definition(function)) is not None:
        told.stack.insert(0, defined)
    last = "".join(told.format_exception_only()).strip().splitlines()
    own = [frame for frame in told.stack if not is_librarys(frame.filename)] or told.stack
    place = f" ({Path(own[-1].filename).name} line {own[-1].lineno})" if own else ""
    return json.dumps(
        {
            "function": name,
            "error": f"{last[-1] if last else ''}{place}"[:2000],
            "traceback": "".join(told.format())[-20000:],
        }
    )


def is_librarys(file: str) -> bool:
    """Whether a file is none of the user's own: what raises is often deep below the line that is to blame."""
    libraries = ("site-packages", "dist-packages", "pyspark.zip", "<frozen", str(Path(os.__file__).parent))
    return file.endswith((".pyx", ".pxi")) or any(part in file for part in libraries)


def _definition(function: Callable[..., Any] | None) -> traceback.FrameSummary | None:
    """Where the user defined a function, if that is known."""
    while isinstance(function, functools.partial):
        function = function.func
    if function is None:
        return None
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:  # an object with __call__
        code = getattr(inspect.getattr_static(type(function), "__call__", None), "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return traceback.FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)


def is_users(file: str) -> bool:
    """Whether a file is neither part of this package nor of PySpark."""
    import pyspark

    return not file.startswith((_OWN_FOLDER, str(Path(pyspark.__file__).parent) + os.sep))
