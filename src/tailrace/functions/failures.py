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


def _is_users(file: str) -> bool:
    import pyspark

    return not file.startswith((_OWN_FOLDER, str(Path(pyspark.__file__).parent) + os.sep))
