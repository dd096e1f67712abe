"""The engine's jar: inside the package in a wheel; in a checkout built from ``jvm/`` whenever its sources changed.

It is compiled by the Scala compiler among PySpark's own jars, against the very Spark that it runs in.
"""

import hashlib
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import EngineBuildFailed, EngineMissing
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
    """One engine: where its jar is or is to be, and where its sources are, if they are here at all."""

    jar: Path
    sources: Path

    def needs_building(self) -> bool:
        """Whether there are sources that the jar was not built from."""
        return bool(self._scala_files()) and self._built_from() != self.digest()

    def ensure(self, java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> Path:
        """Return the jar, built first if need be.

        Raises:
            EngineMissing: There is neither a jar nor anything to build it from.
            EngineBuildFailed: It does not compile.
        """
        try:
            self._ensure_built(java, connector, announce)
        except (OSError, LockTimeoutError) as refused:
            raise EngineBuildFailed(
                f"the engine in {self.sources} could not be built",
                why=str(refused),
                fix=f"see that this user may write to {self.jar.parent}, and try again",
            ) from refused
        if not self.jar.is_file():
            raise EngineMissing(
                f"the engine's jar is not there: {self.jar}",
                why="this installation of Tailrace is incomplete",
                fix="install it again: pip install --force-reinstall --no-deps tailrace",
            )
        return self.jar

    def _ensure_built(self, java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> None:
        if self.needs_building():
            with exclusive(
                self.jar.with_suffix(".lock"),
                on_wait=lambda holder: announce(f"Waiting for process {holder} to build the engine ..."),
            ):
                if self.needs_building():
                    announce("Building the engine, some seconds ...")
                    self._build(java, connector)

    def digest(self) -> str:
        """A checksum of everything that the jar is made of."""
        text = hashlib.sha256(f"{VERSION} {pyspark_version()}".encode())
        for file in self._scala_files():
            text.update(str(file.relative_to(self.sources)).encode() + b"\0" + file.read_bytes())
        return text.hexdigest()

    def _scala_files(self) -> list[Path]:
        return sorted(self.sources.rglob("*.scala"))

    def _built_from(self) -> str | None:
        """The digest that the jar carries."""
        try:
            with zipfile.ZipFile(self.jar) as jar:
                lines = jar.read(PROPERTIES).decode().splitlines()
        except (OSError, KeyError, zipfile.BadZipFile):
            return None
        return dict(line.partition("=")[::2] for line in lines).get("digest")

    def _build(self, java: Java, connector: Sequence[Path]) -> None:
        digest = self.digest()  # first: what is saved while the compiler runs is not in this jar
        with staging(self.jar.parent) as folder:
            made = folder / "engine.jar"
            classpath = ":".join([f"{pyspark_jars_dir()}/*", *map(str, connector)])
            command = [
                *(str(java.home / "bin" / "java"), "-cp", classpath, "scala.tools.nsc.Main", "-usejavacp"),
                *("-deprecation", "-feature", "-Xlint", "-Werror", "-d", str(made)),
                *map(str, self._scala_files()),
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired as late:
                raise EngineBuildFailed(
                    f"the engine was not compiled within {_COMPILE_TIMEOUT_S:.0f} s", fix="try again: make setup"
                ) from late
            if done.returncode != 0:
                words = (done.stdout + done.stderr).strip()
                raise EngineBuildFailed(
                    f"the engine in {self.sources} does not compile",
                    why=next((line for line in words.splitlines() if "error" in line.lower()), words[:200]),
                    fix="fix its Scala sources; --verbose shows all that the compiler said",
                    detail=words,
                )
            with zipfile.ZipFile(made, "a") as jar:
                jar.writestr(PROPERTIES, f"version={VERSION}\ndigest={digest}\n")
            made.replace(self.jar)


def package_engine() -> EngineJar:
    """The engine of this installation."""
    # In a checkout the package lies in src/, and jvm/ beside that. A folder of that name beside an installation is
    # somebody else's.
    checkout = PACKAGE.parents[1]
    is_checkout = PACKAGE.parent.name == "src" and (checkout / "hatch_build.py").is_file()
    return EngineJar(PACKAGE / "tailrace-engine.jar", (checkout if is_checkout else PACKAGE) / "jvm")


def ensure_engine(java: Java, connector: Sequence[Path], announce: Callable[[str], None]) -> Path:
    """Return the engine's jar of this installation; see `EngineJar.ensure`."""
    return package_engine().ensure(java, connector, announce)
