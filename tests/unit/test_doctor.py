"""What `tailrace doctor` says of Python and of the class archives."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace import doctor, spark_jvm, spark_session
from tailrace.cli.app import _run
from tailrace.doctor import Finding
from tailrace.toolchain.class_archive import SWITCH, ArchiveNotWrittenError, ClassArchive
from tailrace.toolchain.java import Java

Capture = pytest.CaptureFixture[str]
NAMES = ("Spark classes", "Kafka classes")
WRITES = """\
#!/bin/sh
for argument; do case $argument in -XX:SharedArchiveFile=*) echo archive > "${argument#*=}" ;; esac; done
"""
REFUSES = "#!/bin/sh\necho 'Error: this Java has no base archive' >&2\nexit 1\n"


class Machine:
    """A machine with a Java of the test's own and nothing else."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        executable = folder / "jdk" / "bin" / "java"
        executable.parent.mkdir(parents=True)
        self.java = Java(home=folder / "jdk", executable=executable, version="17.0.1", major=17, origin="PATH")
        self.archives = [ClassArchive(name, self.java, ()) for name in ("spark", "broker")]
        self._capsys = capsys

    def write(self, script: str = WRITES) -> None:
        self.java.executable.write_text(script)
        self.java.executable.chmod(0o755)
        for archive in self.archives:
            archive.write("some.jar")

    def lines(self) -> dict[str, list[str]]:
        """What the command prints of each archive: its mark, what it found and how to fix that."""
        assert _run(["doctor"]) == 0, "a start without an archive is only slower"
        printed: dict[str, list[str]] = {}
        name = ""
        for line in self._capsys.readouterr().err.splitlines():
            name = line[:13].strip() or name
            printed.setdefault(name, []).append(line[14:].strip())
        return {name: printed[name] for name in NAMES}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Machine:
    fake = Machine(tmp_path, capsys)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(doctor, "find_java", lambda: fake.java)
    monkeypatch.setattr(doctor, "jar_paths", lambda _set: ())
    monkeypatch.setattr(doctor, "broker_archive", lambda _java: fake.archives[1])
    monkeypatch.setattr(spark_jvm, "spark_archive", lambda *_: fake.archives[0])
    monkeypatch.setattr(spark_session, "uses_archive", lambda: True)
    for check in ("_jars", "_engine", "_broker"):
        present = Finding(check, ok=True, needed=True, detail="present")
        monkeypatch.setattr(doctor, check, lambda *_, each=present: [each] if each.name == "_jars" else each)
    return fake


@pytest.mark.parametrize(("version", "ok", "noted"), [
    ((3, 10), False, True),
    ((3, 11), True, False),
    ((3, 13), True, False),
    ((3, 14), True, True),
])  # fmt: skip
def test_a_python_that_is_not_tested_is_noted(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], ok: bool, noted: bool
) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=(*version, 1, "final", 0), executable="python"))
    finding = doctor._python()
    assert finding.ok is ok
    assert ("Tailrace is tested with Python 3.11 to 3.13, not with this version" in finding.fix) is noted


def test_archives_that_are_not_written_yet(machine: Machine) -> None:
    assert set(map(tuple, machine.lines().values())) == {
        (
            "-        not archived yet, so starts are slower",
            "archive them: tailrace doctor --fix; the next run also archives them",
        )
    }


def test_archives_in_use(machine: Machine) -> None:
    machine.write()
    assert machine.lines() == {
        name: [f"ok       archived for fast starts, {archive.path}"]
        for name, archive in zip(NAMES, machine.archives, strict=True)
    }


def test_an_archive_that_sessions_do_not_use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write()
    monkeypatch.setattr(spark_session, "uses_archive", lambda: False)
    spark, kafka = machine.lines().values()
    assert spark == [
        "-        archived but not used, so starts are slower: a setting such as spark.jars changes the class path"
    ]
    assert kafka[0].startswith("ok")


def test_archives_that_java_refuses_to_write(machine: Machine) -> None:
    with pytest.raises(ArchiveNotWrittenError):
        machine.write(REFUSES)
    spark, kafka = machine.lines().values()
    assert spark == ["-        not archived, so starts are slower: Error: this Java has no base archive"]
    assert kafka[0].startswith("-        not archived yet"), "it has not been tried"


def test_archives_that_the_user_has_switched_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write()
    monkeypatch.setenv(SWITCH, "off")
    assert list(machine.lines().values()) == [[f"-        not archived, so starts are slower: {SWITCH} is off"]] * 2
