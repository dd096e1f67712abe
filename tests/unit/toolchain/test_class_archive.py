import gzip
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.toolchain import class_archive
from tailrace.toolchain.class_archive import ArchiveNotWrittenError, ClassArchive, write_list
from tailrace.toolchain.java import Java

WRITES = """\
#!/bin/sh
for argument; do case $argument in -XX:SharedArchiveFile=*) echo archive > "${argument#*=}" ;; esac; done
"""
REFUSES = "#!/bin/sh\necho 'Error: Cannot have non-empty directory in paths' >&2\nexit 1\n"


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    file = tmp_path / "some.jar"
    file.write_text("a jar")
    return file


def java(folder: Path, script: str = WRITES, version: str = "17.0.1") -> Java:
    executable = folder / "jdk" / "bin" / "java"
    executable.parent.mkdir(parents=True, exist_ok=True)
    executable.write_text(script)
    executable.chmod(0o755)
    return Java(home=folder / "jdk", executable=executable, version=version, major=17, origin="PATH")


@pytest.fixture
def archive(tmp_path: Path, jar: Path) -> ClassArchive:
    return ClassArchive("spark", java(tmp_path), (jar,))


def test_an_archive_is_used_once_it_is_written(archive: ClassArchive, home: Path) -> None:
    assert archive.options() == []
    archive.write("some.jar")
    assert archive.is_written
    assert archive.path.is_relative_to(home / "cache")
    assert archive.options() == [f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto"]


def test_writing_leaves_no_other_files(archive: ClassArchive) -> None:
    archive.write("some.jar")
    assert {file.name for file in archive.path.parent.iterdir()} == {archive.path.name, "lock"}


def test_a_refusal_is_saved_with_its_reason(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive("spark", java(tmp_path, REFUSES), (jar,))
    with pytest.raises(ArchiveNotWrittenError, match="non-empty directory"):
        archive.write("some.jar")
    assert not archive.is_written
    assert archive.refusal == "Error: Cannot have non-empty directory in paths"
    assert archive.options() == []


def test_a_refused_archive_is_tried_again_on_request(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive("spark", java(tmp_path, REFUSES), (jar,))
    with pytest.raises(ArchiveNotWrittenError):
        archive.write("some.jar")
    (tmp_path / "jdk" / "bin" / "java").write_text(WRITES)
    archive = ClassArchive("spark", archive.java, (jar,))
    archive.write("some.jar")
    assert archive.is_written
    assert archive.refusal == ""


def test_a_killed_java_is_not_a_refusal(tmp_path: Path, jar: Path) -> None:
    archive = ClassArchive("spark", java(tmp_path, "#!/bin/sh\nkill -9 $$\n"), (jar,))
    with pytest.raises(ArchiveNotWrittenError):
        archive.write("some.jar")
    assert archive.refusal == ""


def test_archives_can_be_switched_off(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.write("some.jar")
    monkeypatch.setenv("TAILRACE_CLASS_ARCHIVE", "off")
    assert archive.options() == []
    assert archive.refusal == "TAILRACE_CLASS_ARCHIVE is off"
    with pytest.raises(ArchiveNotWrittenError, match="off"):
        archive.write("some.jar")


def test_java_gets_the_class_path_and_the_class_list(tmp_path: Path, jar: Path) -> None:
    arguments = tmp_path / "arguments"
    script = WRITES + f'for argument; do echo "$argument"; done > {arguments}\n'
    script += (
        f'for argument; do case $argument in *ClassListFile=*) cp "${{argument#*=}}" {arguments}.list ;; esac; done\n'
    )
    ClassArchive("broker", java(tmp_path, script), (jar,)).write("one.jar:two.jar")
    assert arguments.read_text().splitlines()[-2:] == ["-cp", "one.jar:two.jar"]
    assert "kafka/Kafka\n" in Path(f"{arguments}.list").read_text()


@pytest.mark.parametrize("changed", ["jar", "version", "settings", "name"])
def test_another_java_or_class_path_has_another_archive(tmp_path: Path, jar: Path, changed: str) -> None:
    first = ClassArchive("spark", java(tmp_path), (jar,), ("SPARK_CONF_DIR=",)).path
    if changed == "jar":
        jar.write_text("another jar")
    version = "17.0.2" if changed == "version" else "17.0.1"
    settings = ("SPARK_CONF_DIR=/etc/spark",) if changed == "settings" else ("SPARK_CONF_DIR=",)
    name = "broker" if changed == "name" else "spark"
    assert ClassArchive(name, java(tmp_path, version=version), (jar,), settings).path != first


def test_only_the_most_recently_used_archives_are_kept(tmp_path: Path, jar: Path) -> None:
    archives = [ClassArchive("spark", java(tmp_path), (jar,), (str(number),)) for number in range(4)]
    for age, each in enumerate(archives[:3]):
        each.write("some.jar")
        os.utime(each.path, (1000 + age, 1000 + age))
    assert archives[0].options()  # used just now
    archives[3].write("some.jar")
    assert [each.is_written for each in archives] == [True, False, True, True]


def test_an_archive_is_written_in_the_background(archive: ClassArchive) -> None:
    archive.write_in_background("some.jar", delay_s=0).join(20)
    assert archive.is_written


def test_a_second_background_writer_does_nothing(tmp_path: Path, jar: Path) -> None:
    counted = tmp_path / "count"
    archive = ClassArchive("spark", java(tmp_path, WRITES + f"echo x >> {counted}\nsleep 0.5\n"), (jar,))
    for thread in [archive.write_in_background("some.jar", delay_s=0) for _ in range(3)]:
        thread.join(20)
    assert archive.is_written
    assert counted.read_text() == "x\n"


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    pid = tmp_path / "pid"
    yield pid
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_background_writer_ends_with_the_program(tmp_path: Path, hanging: Path) -> None:
    java(tmp_path, f"#!/bin/sh\necho $$ > {hanging}\nexec sleep 600\n")
    program = f"""
import time
from pathlib import Path
from tailrace.toolchain.class_archive import ClassArchive
from tailrace.toolchain.java import Java
home = Path({str(tmp_path / "jdk")!r})
java = Java(home=home, executable=home / "bin" / "java", version="17", major=17, origin="PATH")
ClassArchive("spark", java, ()).write_in_background("some.jar", delay_s=0)
while not (pid := Path({str(hanging)!r})).exists() or not pid.read_text():
    time.sleep(0.01)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{hanging.read_text().strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_list_has_each_class_once_without_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_LISTS", tmp_path)
    dumped = tmp_path / "dumped"
    dumped.write_text(
        "# a comment\njava/lang/Object id: 0\nb/B id: 9\n@lambda-proxy b/B apply\njava/lang/Object id: 0\n"
    )
    assert write_list("spark", dumped) == 3
    text = gzip.decompress((tmp_path / "spark.list.gz").read_bytes()).decode()
    assert text == "@lambda-proxy b/B apply\nb/B\njava/lang/Object\n"
