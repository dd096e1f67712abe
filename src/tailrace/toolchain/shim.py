"""A Java home whose ``java`` drops the one argument that a reduced Java runtime does not accept.

Spark's launcher adds ``--add-modules=jdk.incubator.vector`` to every JVM, and no setting prevents it. A jlinked runtime
has only some modules, and a JVM does not start if a requested module is absent. Spark works without this module.
"""

import os
import shlex
import tempfile
from pathlib import Path

_SCRIPT = """\
#!/bin/sh
# Written by Tailrace: starts the Java below without the argument that it does not accept.
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
# exec keeps the process id, so signals reach the JVM itself.
exec {java} "$@"
"""


def write_shim(home: Path, java: Path) -> Path:
    """Write a Java home at ``home`` that starts ``java``, and return its executable.

    Raises:
        OSError: The folder is not writable.
    """
    script = _SCRIPT.format(java=shlex.quote(str(java)))
    target = home / "bin" / "java"
    if target.is_file() and target.read_text(encoding="utf-8") == script and os.access(target, os.X_OK):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix="java-", dir=target.parent)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(script)
    temporary = Path(name)
    temporary.chmod(0o755)
    temporary.replace(target)
    return target
