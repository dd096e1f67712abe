"""Download jars from Maven Central with the Ivy resolver that PySpark includes.

Spark itself uses Ivy for ``spark.jars.packages``, so Ivy is available wherever Tailrace runs. Tailrace uses its own
Ivy settings: the user's local repositories and partial caches cannot interfere. To use a company mirror, set
``TAILRACE_IVY_SETTINGS`` to an Ivy settings file.
"""

import os
import re
import selectors
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tailrace.errors import JarMissing
from tailrace.toolchain.addresses import redact_addresses
from tailrace.toolchain.jarlock import Jar
from tailrace.toolchain.java import DOWNLOADED, Java
from tailrace.toolchain.spark import ivy_jar
from tailrace.toolchain.truststore import write_truststore

Progress = Callable[[int, int, str], None]
"""Called with the number of jars downloaded, their total number and the name of the latest one."""

SETTINGS_VARIABLE = "TAILRACE_IVY_SETTINGS"

_SILENCE_S = 60.0
"""Ivy prints a dot for every few kB; no output for this long means that the network has stalled."""

# No POMs: the lock names every jar, so there are no dependencies to resolve. Maven Central is Ivy's default.
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
# Two sets may need two versions of one module. By default Ivy drops the older one.
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
    """Download ``jars`` into a folder inside ``folder`` and return it.

    Ivy verifies the checksums that Maven Central publishes; the caller verifies those of the lock.

    Raises:
        JarMissing: At least one download failed. The others may be incomplete.
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
                # All jars come from one repository: if it is unreachable once, do not try fifty times. The user's own
                # settings may name a second repository.
                if settings.parent == folder and _UNREACHABLE.search(line):
                    process.kill()
                    break
        except TimeoutError:
            process.kill()
            lines.append(f"Server access error at url - (no answer for {_SILENCE_S:g} s)")
        except BaseException:
            # Ctrl-C, for example: Ivy must not keep running.
            process.kill()
            raise
    if process.returncode != 0:
        raise _missing(jars, folder, lines)
    return folder / "jars"


def origin() -> str:
    """Return the name of the repository that the jars come from, for messages."""
    return f"the repository in {SETTINGS_VARIABLE}" if os.environ.get(SETTINGS_VARIABLE) else "Maven Central"


def _settings(folder: Path) -> Path:
    named = os.environ.get(SETTINGS_VARIABLE)
    if not named:
        own = folder / "settings.xml"
        own.write_text(_SETTINGS, encoding="utf-8")
        return own
    path = Path(named).expanduser().absolute()
    if not path.is_file():
        raise JarMissing(
            f"cannot download the jars: {SETTINGS_VARIABLE} is set to {path}, which is not a file",
            fix=f"set {SETTINGS_VARIABLE} to an Ivy settings file, or run: unset {SETTINGS_VARIABLE}",
        )
    return path


def _command(java: Java, jars: Sequence[Jar], settings: Path, folder: Path) -> list[str]:
    module = folder / "ivy.xml"
    dependencies = "\n".join(_DEPENDENCY.format(jar=jar) for jar in jars)
    module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
    options = ["-XX:TieredStopAtLevel=1"]
    store = folder / "trusted.jks"
    if java.origin == DOWNLOADED and write_truststore(store):
        options += [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    ivy = ["-cp", str(ivy_jar()), "org.apache.ivy.Main"]
    # Only Ivy's verbose output tells an unreachable repository from one without the jar.
    ivy += ["-verbose", "-settings", str(settings), "-cache", str(folder / "ivy-cache"), "-ivy", str(module)]
    return [str(java.executable), *options, *ivy, "-retrieve", f"{folder}/jars/[artifact]-[revision].[ext]"]


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield the lines as they arrive; raise TimeoutError if there is no output for too long."""
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
    if _UNREACHABLE.search(output) is not None:
        absent = [jar.coordinate for jar in jars]
        cause = re.search(r"Server access error at url \S+ \((.*)\)", output)
        reason = f" ({redact_addresses(cause.group(1))})" if cause is not None else ""
        why = f"{origin()} is unreachable{reason}"
    elif not_found:
        absent, why = not_found, f"{origin()} does not have it"
    else:
        absent, why = [jar.coordinate for jar in jars], "Ivy, the resolver in PySpark, failed"
    return JarMissing(
        f"cannot download {_named(absent)}",
        why=why,
        fix=f"connect to the network once and run: tailrace doctor --fix; or copy {_files(jars)} into {folder.parent}",
        detail=redact_addresses(output),
    )


def _named(coordinates: Sequence[str]) -> str:
    more = len(coordinates) - 1
    return coordinates[0] + (f" and {more} more {'jar' if more == 1 else 'jars'}" if more else "")


def _files(jars: Sequence[Jar]) -> str:
    return jars[0].file_name if len(jars) == 1 else f"the {len(jars)} missing jars"
