import re
from pathlib import Path

import pytest

from tailrace.errors import JarLockInvalid
from tailrace.toolchain import Jar, read_lock

SHA = "a" * 64


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jars.lock"
    path.write_text(text)
    return path


def test_comments_and_empty_lines_are_skipped_in_order(tmp_path: Path) -> None:
    text = f"# why\n\nbroker b.c:d-e_2.13:1.0 sha256:{SHA}  # note\nconnector a:x:2 sha256:{SHA}\n"
    lock = read_lock(written(tmp_path, text))
    assert lock == (Jar("broker", "b.c", "d-e_2.13", "1.0", SHA), Jar("connector", "a", "x", "2", SHA))
    assert lock[0].file_name == "d-e_2.13-1.0.jar"
    assert lock[0].coordinate == "b.c:d-e_2.13:1.0"


@pytest.mark.parametrize(
    "line",
    [
        f"a:x:2 sha256:{SHA}",
        f"broker a:x sha256:{SHA}",
        "broker a:x:2 sha256:abc",
        f"broker a:x:2 md5:{SHA}",
        f"broker ../a:x:2/.. sha256:{SHA}",
        f'broker a:x"/>:2 sha256:{SHA}',
    ],
)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"# first\nbroker a:ok:1 sha256:{SHA}\n{line}\n")
    with pytest.raises(JarLockInvalid, match="line 3 of the jar lock"):
        read_lock(path)


def test_two_jars_with_one_file_name_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f"broker a:x:1 sha256:{SHA}\nbroker b:x:1 sha256:{SHA}\n")
    with pytest.raises(JarLockInvalid, match="line 2"):
        read_lock(path)


def test_an_empty_or_absent_lock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JarLockInvalid):
        read_lock(written(tmp_path, "# nothing\n"))
    with pytest.raises(JarLockInvalid, match="cannot read the jar lock"):
        read_lock(tmp_path / "absent")


def test_the_packaged_lock_has_both_sets_and_no_address() -> None:
    lock = read_lock()
    by_set = {name: {jar.artifact for jar in lock if jar.set_name == name} for name in ("connector", "broker")}
    assert {"spark-sql-kafka-0-10_2.13", "kafka-clients", "commons-pool2"} <= by_set["connector"]
    assert {"kafka_2.13", "kafka-clients", "log4j-slf4j-impl"} <= by_set["broker"]
    assert {jar.set_name for jar in lock} == set(by_set)
    for name in ("jars.lock", "java.lock"):
        text = (Path(read_lock.__code__.co_filename).with_name(name)).read_text()
        assert not re.search(r"://", text)
