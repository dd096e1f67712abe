"""The jars of an engine: named one by one with their checksums in the engine's own lock, fetched as Tailrace's are."""

from pathlib import Path

from tailrace.bench.engines.engine import Announce, Engine
from tailrace.toolchain import Java, read_lock
from tailrace.toolchain import ivy as maven
from tailrace.toolchain.jars import Fetch, JarCache


def jar_paths(engine: Engine) -> list[Path]:
    """Where the engine's jars are once it is set up."""
    return [engine.folder / "jars" / jar.file_name for jar in read_lock(engine.programs / "jars.lock")]


def ensure_jars(engine: Engine, java: Java, announce: Announce, fetch: Fetch = maven.fetch) -> None:
    """See that each jar is there and is what the lock says; fetch what is not. The caller holds the engine's folder."""
    cache = JarCache(engine.folder / "jars", read_lock(engine.programs / "jars.lock"), fetch)
    # Not a plain fetch of what is missing: a jar that a full disk or a stray hand spoiled is fetched anew, too.
    if any(state.state != "present" for state in cache.status()):
        cache.repair(
            java,
            announce=lambda text: announce(f"{engine.title}: {text}"),
            progress=lambda done, total, name: announce(f"{engine.title}: {done} of {total} jars ({name})"),
        )
