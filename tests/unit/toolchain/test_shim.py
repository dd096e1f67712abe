import subprocess
from pathlib import Path

from tailrace.toolchain.shim import write_shim


def fake_java(folder: Path) -> Path:
    """Print its process id, then each argument in brackets, and end with status 7."""
    java = folder / "a real 'java'"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$$"\nfor a do printf "[%s]\\n" "$a"; done\nexit 7\n')
    java.chmod(0o755)
    return java


def test_the_shim_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    shim = write_shim(tmp_path / "home", fake_java(tmp_path))
    kept = [
        "-Da=b c",
        "",
        "--add-modules=java.sql",
        "x*",
        '"q" $HOME',
        "--add-modules",
        "jdk.incubator.vector",
    ]
    arguments = [*kept[:2], "--add-modules=jdk.incubator.vector", *kept[2:]]
    process = subprocess.Popen([shim, *arguments], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=30)
    pid, *received = output.splitlines()
    assert received == [f"[{argument}]" for argument in kept]
    assert process.returncode == 7
    assert int(pid) == process.pid, "the shim must become Java, not start it"


def test_the_shim_is_written_once_and_repaired(tmp_path: Path) -> None:
    java = fake_java(tmp_path)
    shim = write_shim(tmp_path / "home", java)
    before = shim.stat()
    assert write_shim(tmp_path / "home", java).stat().st_ino == before.st_ino
    content = shim.read_text()
    shim.write_text("broken")
    assert write_shim(tmp_path / "home", java).read_text() == content
    assert [path.name for path in shim.parent.iterdir()] == ["java"]
