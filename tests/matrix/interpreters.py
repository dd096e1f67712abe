"""Find an installed CPython, or download a pinned build from Maven Central."""

import glob
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.toolchain import Jar, Java, cache_dir, ensure_java, ivy
from tailrace.toolchain.filelock import exclusive
from tailrace.toolchain.jars import JarCache
from tailrace.toolchain.java import DOWNLOADED
from tailrace.toolchain.spark import ivy_jar
from tailrace.toolchain.staging import staging
from tailrace.toolchain.truststore import write_truststore

from .report import NotAvailable

LOCK_FILE = Path(__file__).with_name("pythons.lock")

_USUAL_PLACES = ("~/.pyenv/versions/{version}.*/bin/python", "~/.local/share/uv/python/cpython-{version}.*/bin/python3")
_ASK_TIMEOUT_S = 20.0
# Debian's Python has no ensurepip without python3-venv; a Python built from source can lack ctypes or ssl.
_ASK = "import ctypes, ensurepip, platform as p, ssl, venv; print(p.python_implementation(), p.python_version())"

_PINNED = re.compile(
    r"(?P<python>3\.\d+) (?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+):(?P<classifier>[\w.-]+) "
    r"sha256:(?P<sha256>[0-9a-f]{64})"
)
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tailrace" module="python"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false" conf="default->default">
      <artifact name="{jar.artifact}" type="jar" ext="jar" m:classifier="{jar.classifier}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_FETCH_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Interpreter:
    """A CPython that works and can create virtual environments."""

    executable: Path
    version: str
    """The exact version, such as 3.12.1."""
    origin: str


@dataclass(frozen=True)
class PythonBuild(Jar):
    """A jar with a CPython build for one platform."""

    classifier: str

    @property
    def file_name(self) -> str:
        """The name that the jar has on Maven Central."""
        return f"{self.artifact}-{self.version}-{self.classifier}.jar"


def find_interpreter(version: str) -> Interpreter | None:
    """Return an installed Python of a version such as ``3.12``, or None if none works.

    The search order: the running Python, PATH, the folders of pyenv and uv.
    """
    for python, origin in _installed_pythons(version):
        exact = ask_version(python)
        if exact is not None and exact.startswith(f"{version}."):
            return Interpreter(python, exact, origin)
    return None


def ask_version(python: Path) -> str | None:
    """Return the exact version of a CPython that can create virtual environments, or None.

    A version manager's shim may exist without an installed Python.
    """
    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", _ASK], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    implementation, _, exact = answer.stdout.strip().partition(" ")
    return exact if answer.returncode == 0 and implementation == "CPython" else None


def fetch_interpreter(version: str, lock_file: Path = LOCK_FILE) -> Interpreter:
    """Return the pinned build of a version; download and unpack it unless it is in the cache.

    Raises:
        NotAvailable: There is no build for this platform, its download failed, or it does not run.
    """
    build = pinned_build(version, this_platform(), lock_file)
    folder = cache_dir() / "matrix" / "pythons"
    home = folder / build.file_name.removesuffix(".jar")
    executable = home / "bin" / f"python{version}"
    try:
        with exclusive(folder / "lock", on_wait=lambda _holder: None):
            if not executable.is_file():
                java = ensure_java(_say)
                cache = JarCache(folder / "jars", (build,), fetch=_fetch)
                (jar,) = cache.ensure(java, [build.set_name], announce=_say, progress=lambda *_: None)[build.set_name]
                with staging(folder) as unfinished:
                    unpack(jar, unfinished / "home", version)
                    (unfinished / "home").replace(home)
                jar.unlink()
    except (OSError, TailraceError) as error:
        raise NotAvailable(f"cannot download {build.coordinate}: {error}") from error
    exact = ask_version(executable)
    if exact is None:
        raise NotAvailable(f"{build.coordinate} does not run on this machine")
    return Interpreter(executable, exact, "Maven Central")


def pinned_build(version: str, for_platform: str, lock_file: Path = LOCK_FILE) -> PythonBuild:
    """Return the lock file's build of a version for a platform.

    Raises:
        NotAvailable: The lock file has none.
    """
    for line in lock_file.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        match = _PINNED.fullmatch(line)
        assert match, f"{lock_file.name}: not a pinned build: {line}"
        fields = match.groupdict()
        if fields.pop("python") == version and fields["classifier"] == for_platform:
            return PythonBuild(set_name="python", **fields)
    raise NotAvailable(f"none installed, and no pinned build for {for_platform}")


def this_platform() -> str:
    """Return this machine's platform as the jars' classifiers name it."""
    return f"{platform.system().lower()}-{platform.machine()}"


def unpack(jar: Path, home: Path, version: str) -> None:
    """Unpack a jar's CPython into ``home`` so that ``bin/python3.X`` runs there.

    Raises:
        NotAvailable: The jar has no CPython in it.
    """
    with zipfile.ZipFile(jar) as archive:
        inside = next((name for name in archive.namelist() if name.endswith(f"/bin/python{version}")), None)
        if inside is None:
            raise NotAvailable(f"{jar.name} has no Python {version} in it")
        root = inside.removesuffix(f"bin/python{version}")
        unpacked = home.with_name(f"{home.name}-unpacked")
        archive.extractall(unpacked, [name for name in archive.namelist() if name.startswith(root)])
    (unpacked / root).replace(home)
    # A jar does not keep the permission to execute.
    (home / "bin" / f"python{version}").chmod(0o755)
    # The modules look for libffi beside themselves; some builds have it two folders up only.
    modules = home / "lib" / f"python{version}" / "lib-dynload"
    for library in home.glob("libffi.so.*"):
        (modules / library.name).symlink_to(os.path.relpath(library, modules))


def _installed_pythons(version: str) -> Iterator[tuple[Path, str]]:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield Path(sys.executable), "running"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        python = Path(folder) / f"python{version}"
        if folder and python.is_file():
            yield python, "PATH"
    for pattern in _USUAL_PLACES:
        place = os.path.expanduser(pattern.format(version=version))  # noqa: PTH111 - a pattern, not a path
        for path in sorted(glob.glob(place), reverse=True):  # noqa: PTH207 - an absolute pattern
            yield Path(path), "pyenv" if ".pyenv" in pattern else "uv"


def _fetch(java: Java, jars: Sequence[Jar], folder: Path, _progress: ivy.Progress) -> Path:
    (build,) = jars
    (folder / "ivy.xml").write_text(_MODULE.format(jar=build), encoding="utf-8")
    command = [str(java.executable), "-XX:TieredStopAtLevel=1"]
    store = folder / "trusted.jks"
    if java.origin == DOWNLOADED and write_truststore(store):
        command += [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    command += ["-cp", str(ivy_jar()), "org.apache.ivy.Main", "-settings", str(ivy._settings(folder))]
    command += ["-cache", str(folder / "ivy-cache"), "-ivy", str(folder / "ivy.xml")]
    command += ["-retrieve", f"{folder}/jars/[artifact]-[revision]-[classifier].[ext]"]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_FETCH_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise NotAvailable(f"cannot download {build.coordinate} from {ivy.origin()}")
    return folder / "jars"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
