"""Running Ivy, with a shell script in the place of Java that prints what Ivy prints."""

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tailrace.errors import JarMissing
from tailrace.toolchain import Jar, Java, ivy

JARS = [Jar("s", "org.one", "a", "1.0", "0" * 64), Jar("t", "org.one", "a", "2.0", "0" * 64)]


def java_that(tmp_path: Path, script: str, origin: str = "PATH") -> Java:
    executable = tmp_path / "java"
    executable.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/arguments"\n{script}\n')
    executable.chmod(0o755)
    return Java(tmp_path, executable, "17.0.1", 17, origin)


def fetched(tmp_path: Path, java: Java) -> list[tuple[int, int, str]]:
    steps: list[tuple[int, int, str]] = []
    (tmp_path / "jars").mkdir()
    staged = tmp_path / "jars" / "staging-x"
    staged.mkdir()
    assert ivy.fetch(java, JARS, staged, lambda *step: steps.append(step)) == staged / "jars"
    return steps


def test_each_downloaded_jar_is_reported_at_once(tmp_path: Path) -> None:
    script = """
printf '..'
echo ' (9kB)'
echo '	[SUCCESSFUL ] org.one#a;1.0!a.jar (442ms)'
echo '	[SUCCESSFUL ] org.one#a;2.0!a.jar (42ms)'
"""
    assert fetched(tmp_path, java_that(tmp_path, script)) == [(1, 2, "a-1.0.jar"), (2, 2, "a-2.0.jar")]


def test_ivy_resolves_exactly_these_jars(tmp_path: Path) -> None:
    fetched(tmp_path, java_that(tmp_path, "exit 0"))
    staged = tmp_path / "jars" / "staging-x"
    module = ET.parse(staged / "ivy.xml")
    asked = [(one.get("org"), one.get("name"), one.get("rev")) for one in module.iter("dependency")]
    assert asked == [(jar.group, jar.artifact, jar.version) for jar in JARS]
    assert {one.get("transitive") for one in module.iter("dependency")} == {"false"}
    assert [one.get("manager") for one in module.iter("conflict")] == ["all"], "both versions must come"
    arguments = (tmp_path / "arguments").read_text()
    assert f"-cache {staged}/ivy-cache" in arguments
    assert f"-retrieve {staged}/jars/[artifact]-[revision].[ext]" in arguments
    assert "trustStore" not in arguments


def test_only_a_downloaded_java_gets_a_truststore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "write_truststore", lambda _: True)  # this Python may know no authorities
    fetched(tmp_path, java_that(tmp_path, "exit 0", origin="downloaded"))
    assert "trustStore=" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "ERROR: Server access error at url https://example.org/x (java.net.ConnectException: refused)",
            "Maven Central is unreachable (java.net.ConnectException: refused)",
        ),
        (
            "WARN: Host registry.example.org not found. url=https://registry.example.org/x",
            "Maven Central is unreachable",
        ),
    ],
)
def test_without_a_network_ivy_fails_at_once(tmp_path: Path, line: str, why: str) -> None:
    java = java_that(tmp_path, f"echo '{line}'\nexec sleep 60")
    with pytest.raises(JarMissing, match=r"cannot download org\.one:a:1\.0 and 1 more jar") as missing:
        fetched(tmp_path, java)
    assert missing.value.why == why
    assert "tailrace doctor --fix" in missing.value.fix
    assert f"copy the 2 missing jars into {tmp_path}/jars" in missing.value.fix
    assert "example.org" not in str(missing.value) + missing.value.detail


def test_a_missing_jar_is_named(tmp_path: Path) -> None:
    java = java_that(tmp_path, "echo 'WARN: 	module not found: org.one#a;2.0'\nexit 1")
    with pytest.raises(JarMissing, match=r"^cannot download org\.one:a:2\.0") as missing:
        fetched(tmp_path, java)
    assert missing.value.why == "Maven Central does not have it"


def test_another_failure_has_ivys_output(tmp_path: Path) -> None:
    with pytest.raises(JarMissing) as missing:
        fetched(tmp_path, java_that(tmp_path, "echo 'No space left on device' >&2\nexit 1"))
    assert "No space left" in missing.value.detail


def test_a_stalled_network_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ivy, "_SILENCE_S", 0.2)
    with pytest.raises(JarMissing) as missing:
        fetched(tmp_path, java_that(tmp_path, "exec sleep 60"))
    assert "no answer for 0.2 s" in missing.value.why


def test_an_interrupt_ends_ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_that(tmp_path, f"echo $$ > {tmp_path}/pid\necho '[SUCCESSFUL ] o#a;1!a.jar'\nexec sleep 60")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ivy.fetch(java, JARS, tmp_path, interrupt)
    pid = (tmp_path / "pid").read_text().strip()
    assert subprocess.run(["/bin/kill", "-0", pid], capture_output=True, check=False).returncode != 0


def test_the_users_settings_are_used_with_every_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = tmp_path / "mirror.xml"
    mirror.write_text("<ivysettings/>")
    monkeypatch.setenv("TAILRACE_IVY_SETTINGS", str(mirror))
    script = "echo 'ERROR: Server access error at url x (down)'\necho '[SUCCESSFUL ] o#a;1.0!a.jar'"
    assert fetched(tmp_path, java_that(tmp_path, script)) == [(1, 2, "a-1.0.jar")]
    assert f"-settings {mirror}" in (tmp_path / "arguments").read_text()


def test_missing_settings_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_IVY_SETTINGS", str(tmp_path / "absent.xml"))
    with pytest.raises(JarMissing, match="TAILRACE_IVY_SETTINGS is set to"):
        fetched(tmp_path, java_that(tmp_path, "exit 0"))


def test_tailraces_settings_have_no_address() -> None:
    assert "://" not in Path(ivy.__file__).read_text()
