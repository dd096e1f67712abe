"""A Java home whose ``java`` leaves out the one argument that a reduced Java runtime cannot start with.

Spark's launcher adds ``--add-modules=jdk.incubator.vector`` to every JVM and has no setting against it. A
runtime made with jlink has only the modules it was made with, and a JVM that is asked for an absent module
does not start. Spark uses the module where it is there and works without it.
"""

import os
import shlex
import tempfile
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
# Written by Tailrace: starts the Java named below without the argument that it cannot start with.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
# exec keeps the process id, so that whoever started this can stop the JVM itself.
exec {java} "$@"
"""


def write_shim(home: Path, java: Path) -> Path:
    """Make ``home`` a Java home that starts ``java``, and return its executable.

    Raises:
        OSError: The folder cannot be written.
    """
    script = _SCRIPT.format(java=shlex.quote(str(java)))
    target = home / "bin" / "java"
    if target.is_file() and target.read_text(encoding="utf-8") == script and os.access(target, os.X_OK):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="java-", dir=target.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    made = Path(name)
    made.chmod(0o755)
    made.replace(target)
    return target
