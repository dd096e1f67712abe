"""What went wrong in a user's function, as an answer."""

import json
import os
import traceback
from pathlib import Path

_OWN_FOLDER = str(Path(__file__).parent)


class FunctionFailed(Exception):
    """Ends a worker with the user's own traceback: no row has to do with it."""

    @classmethod
    def by(cls, name: str, raised: BaseException) -> "FunctionFailed":
        """What a function raised."""
        return cls(json.loads(described(name, raised))["traceback"])


def described(name: str, raised: BaseException) -> str:
    """What went wrong, for the engine: which function, the exception, and the user's part of the traceback."""
    told = traceback.TracebackException.from_exception(raised, limit=-30)
    each: traceback.TracebackException | None = told
    while each is not None:
        each.stack = traceback.StackSummary.from_list([frame for frame in each.stack if _is_users(frame.filename)])
        each = each.__cause__ or each.__context__
    last = "".join(told.format_exception_only()).strip().splitlines()
    place = f" ({Path(told.stack[-1].filename).name} line {told.stack[-1].lineno})" if told.stack else ""
    return json.dumps(
        {
            "function": name,
            "error": f"{last[-1] if last else ''}{place}"[:2000],
            "traceback": "".join(told.format())[-20000:],
        }
    )


def _is_users(file: str) -> bool:
    import pyspark

    return not file.startswith((_OWN_FOLDER, str(Path(pyspark.__file__).parent) + os.sep))
