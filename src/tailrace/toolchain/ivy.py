"""Fetching jars from Maven Central through the Ivy resolver that is inside PySpark.

Ivy is what Spark itself resolves ``spark.jars.packages`` with, so it is wherever Tailrace runs. Its
settings here are Tailrace's own, so that the user's local repositories and half-written caches cannot
interfere. A company that has a mirror names its own Ivy settings file in ``TAILRACE_IVY_SETTINGS``.
"""

import os
import re
import selectors
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tailrace.errors import JarMissing
from tailrace.toolchain.addresses import without_addresses
from tailrace.toolchain.jarlock import Jar
from tailrace.toolchain.java import OBTAINED, Java
from tailrace.toolchain.spark import ivy_jar
from tailrace.toolchain.truststore import write_truststore

Progress = Callable[[int, int, str], None]
"""Called with how many jars are there, how many there will be, and the name of the newest."""

SETTINGS_VARIABLE = "TAILRACE_IVY_SETTINGS"

_SILENCE_S = 60.0
"""Ivy prints a dot for every few kB. This long without one means that the network has stalled."""

# No POMs: the lock names every jar, so there is nothing to resolve. Maven Central is Ivy's default.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="10000" readTimeout="30000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" timeoutConstraint="bounded"/>
  </resolvers>
</ivysettings>
"""
# Two sets may need two versions of one module. Ivy's default is to drop the older.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="tailrace" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    <conflict org="*" module="*" manager="all"/>
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = """\
    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false"
        conf="default->default">
      <artifact name="{jar.artifact}" type="jar" ext="jar"/>
    </dependency>"""

_ARRIVED = re.compile(r"\[SUCCESSFUL \] .*?#(?P<artifact>[^;]+);(?P<version>[^!]+)!")
_UNREACHABLE = re.compile(r"Server access error|Host \S+ not found")
_NOT_FOUND = re.compile(r"module not found: (?P<group>[^#]+)#(?P<artifact>[^;]+);(?P<version>\S+)")


def fetch(java: Java, jars: Sequence[Jar], folder: Path, progress: Progress) -> Path:
    """Download ``jars`` and return the folder, inside ``folder``, that has them under their file names.

    Ivy compares each with the checksum that Maven Central publishes; the caller compares with the lock.

    Raises:
        JarMissing: At least one could not be had. Nothing can be said about the others.
    """
    settings = _settings(folder)
    lines: list[str] = []
    done = 0
    command = _command(java, jars, settings, folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        try:
            for line in _lines(process.stdout):
                lines.append(line)
                if (arrived := _ARRIVED.search(line)) is not None:
                    done += 1
                    progress(done, len(jars), "{artifact}-{version}.jar".format(**arrived.groupdict()))
                # All jars come from one place: when it cannot be reached once, do not try fifty times. The
                # user's own settings may name a second place to try.
                if settings.parent == folder and _UNREACHABLE.search(line):
                    process.kill()
                    break
        except TimeoutError:
            process.kill()
            lines.append(f"Server access error at url - (no answer for {_SILENCE_S:g} s)")
        except BaseException:
            # Whatever ends the reading early, Ctrl-C too, ends Ivy.
            process.kill()
            raise
    if process.returncode != 0:
        raise _missing(jars, folder, lines)
    return folder / "jars"


def place() -> str:
    """Return how to call the place that the jars come from, in a message."""
    return f"the place that {SETTINGS_VARIABLE} names" if os.environ.get(SETTINGS_VARIABLE) else "Maven Central"


def _settings(folder: Path) -> Path:
    named = os.environ.get(SETTINGS_VARIABLE)
    if not named:
        own = folder / "settings.xml"
        own.write_text(_SETTINGS, encoding="utf-8")
        return own
    path = Path(named).expanduser().absolute()
    if not path.is_file():
        raise JarMissing(
            f"The jars cannot be fetched: {SETTINGS_VARIABLE} is set to {path}, which is not a file.",
            fix=f"Set {SETTINGS_VARIABLE} to an Ivy settings file, or run `unset {SETTINGS_VARIABLE}`.",
        )
    return path


def _command(java: Java, jars: Sequence[Jar], settings: Path, folder: Path) -> list[str]:
    module = folder / "ivy.xml"
    dependencies = "\n".join(_DEPENDENCY.format(jar=jar) for jar in jars)
    module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
    options = ["-XX:TieredStopAtLevel=1"]
    store = folder / "trusted.jks"
    if java.origin == OBTAINED and write_truststore(store):
        options += [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    ivy = ["-cp", str(ivy_jar()), "org.apache.ivy.Main"]
    # Only Ivy's verbose output says whether a place could not be reached or does not have the jar.
    ivy += ["-verbose", "-settings", str(settings), "-cache", str(folder / "ivy-cache"), "-ivy", str(module)]
    return [str(java.executable), *options, *ivy, "-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"]


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield the lines as they come; raise TimeoutError when nothing at all has come for too long."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=_SILENCE_S):
                raise TimeoutError
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                break
            *complete, pending = (pending + chunk).split(b"\n")
            yield from (line.decode(errors="replace") for line in complete)
    yield pending.decode(errors="replace")


def _missing(jars: Sequence[Jar], folder: Path, lines: Sequence[str]) -> JarMissing:
    output = "\n".join(lines)
    not_found = list(dict.fromkeys(":".join(match) for match in _NOT_FOUND.findall(output)))
    source = place()[0].upper() + place()[1:]
    if _UNREACHABLE.search(output) is not None:
        absent = [jar.coordinate for jar in jars]
        cause = re.search(r"Server access error at url \S+ \((.*)\)", output)
        reason = f" ({without_addresses(cause.group(1))})" if cause is not None else ""
        why = f"{source} could not be reached{reason}."
    elif not_found:
        absent, why = not_found, f"{source} does not have it."
    else:
        absent, why = [jar.coordinate for jar in jars], "Ivy, the resolver inside PySpark, failed."
    return JarMissing(
        f"{_named(absent)} could not be fetched.",
        why=why,
        fix="Connect to the network once and run `tailrace doctor --fix`, "
        f"or copy {_files(jars)} into {folder.parent}.",
        detail=without_addresses(output),
    )


def _named(coordinates: Sequence[str]) -> str:
    more = len(coordinates) - 1
    return coordinates[0] + (f" and {more} more {'jar' if more == 1 else 'jars'}" if more else "")


def _files(jars: Sequence[Jar]) -> str:
    return jars[0].file_name if len(jars) == 1 else f"the {len(jars)} jars that are missing"
