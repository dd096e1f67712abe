"""The engine jar: a wheel contains it; a checkout builds it from ``jvm/`` when the sources change.

The Scala compiler in PySpark's own jars compiles it, against the same Spark that runs it.
"""

import hashlib
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import REINSTALL, EngineBuildFailed, EngineMissing
from tailrace.toolchain.filelock import LockTimeoutError, exclusive
from tailrace.toolchain.java import Java
from tailrace.toolchain.spark import pyspark_jars_dir, pyspark_version
from tailrace.toolchain.staging import staging
from tailrace.version import VERSION

PACKAGE = Path(__file__).resolve().parents[1]
PROPERTIES = "tailrace-engine.properties"
_COMPILE_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class EngineJar:
    """The path of an engine jar and the folder of its sources; an installed wheel has no sources."""

    jar: Path
    sources: Path

    def needs_building(self) -> bool:
        """Return whether the sources have changed since the jar was built."""
        return bool(self._scala_files()) and self._built_from() != self.digest()

    def ensure(self, java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> Path:
        """Return the path of the jar; build it first if necessary.

        Raises:
            EngineMissing: There is no jar, and there are no sources.
            EngineBuildFailed: The sources do not compile, or the jar cannot be written.
        """
        try:
            self._ensure_built(java, connector, announce)
        except (OSError, LockTimeoutError) as refused:
            raise EngineBuildFailed(
                f"cannot build the engine in {self.sources}",
                why=str(refused),
                fix=f"make {self.jar.parent} writable for this user, and try again",
            ) from refused
        if not self.jar.is_file():
            raise EngineMissing(
                f"the engine jar {self.jar} does not exist",
                why="this installation of Tailrace is incomplete",
                fix=REINSTALL,
            )
        return self.jar

    def _ensure_built(self, java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> None:
        if self.needs_building():
            with exclusive(
                self.jar.with_suffix(".lock"),
                on_wait=lambda holder: announce(f"Waiting for process {holder} to build the engine ..."),
            ):
                if self.needs_building():
                    announce("Building the engine, which takes some seconds ...")
                    self._build(java, connector)

    def digest(self) -> str:
        """Return a checksum of the sources, the version and the PySpark version."""
        text = hashlib.sha256(f"{VERSION} {pyspark_version()}".encode())
        for file in self._scala_files():
            text.update(str(file.relative_to(self.sources)).encode() + b"\0" + file.read_bytes())
        return text.hexdigest()

    def _scala_files(self) -> list[Path]:
        return sorted(self.sources.rglob("*.scala"))

    def _built_from(self) -> str | None:
        """Return the digest that is stored in the jar."""
        try:
            with zipfile.ZipFile(self.jar) as jar:
                lines = jar.read(PROPERTIES).decode().splitlines()
        except (OSError, KeyError, zipfile.BadZipFile):
            return None
        return dict(line.partition("=")[::2] for line in lines).get("digest")

    def _build(self, java: Java, connector: Sequence[Path]) -> None:
        digest = self.digest()  # before compiling: a source that changes meanwhile is not in this jar
        with staging(self.jar.parent) as folder:
            built = folder / "engine.jar"
            classpath = ":".join([f"{pyspark_jars_dir()}/*", *map(str, connector)])
            command = [
                *(str(java.home / "bin" / "java"), "-cp", classpath, "scala.tools.nsc.Main", "-usejavacp"),
                *("-deprecation", "-feature", "-Xlint", "-Werror", "-d", str(built)),
                *map(str, self._scala_files()),
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired as late:
                raise EngineBuildFailed(
                    f"the engine did not compile within {_COMPILE_TIMEOUT_S:.0f} s", fix="try again: make setup"
                ) from late
            if done.returncode != 0:
                output = (done.stdout + done.stderr).strip()
                raise EngineBuildFailed(
                    f"the engine in {self.sources} does not compile",
                    why=next((line for line in output.splitlines() if "error" in line.lower()), output[:200]),
                    fix="fix its Scala sources; --verbose shows the compiler's full output",
                    detail=output,
                )
            with zipfile.ZipFile(built, "a") as jar:
                jar.writestr(PROPERTIES, f"version={VERSION}\ndigest={digest}\n")
            built.replace(self.jar)


def package_engine() -> EngineJar:
    """Return the engine of this installation."""
    # In a checkout the package is in src/, next to jvm/. Next to an installed package, a folder jvm/ is not ours.
    checkout = PACKAGE.parents[1]
    is_checkout = PACKAGE.parent.name == "src" and (checkout / "hatch_build.py").is_file()
    return EngineJar(PACKAGE / "tailrace-engine.jar", (checkout if is_checkout else PACKAGE) / "jvm")


def ensure_engine(java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> Path:
    """Return the engine jar of this installation; see `EngineJar.ensure`."""
    return package_engine().ensure(java, connector, announce)
