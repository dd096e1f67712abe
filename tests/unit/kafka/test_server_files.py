import base64
import re
from pathlib import Path

import pytest

from tailrace.errors import BrokerStartFailed
from tailrace.kafka.server_files import ServerFiles


def as_java_reads(path: Path) -> dict[str, str]:
    """A properties file as Java's loader reads it: Latin-1, with backslash escapes."""
    pairs = (line.partition("=") for line in path.read_text(encoding="latin-1").splitlines() if line)
    return {key: re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), value) for key, _, value in pairs}


def test_a_broker_listens_only_on_loopback(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path / "broker")
    files.write(9192, 9193)
    settings = as_java_reads(files.properties)
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9192,CONTROLLER://127.0.0.1:9193"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9192"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9193"
    assert settings["log.dirs"] == str(files.data)
    assert files.data.is_dir()


def test_topics_are_not_created_automatically(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path)
    files.write(1, 2)
    assert as_java_reads(files.properties)["auto.create.topics.enable"] == "false"


def test_records_with_old_timestamps_are_kept(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path)
    files.write(1, 2)
    assert as_java_reads(files.properties)["log.retention.ms"] == "-1"


def test_the_log_may_be_in_another_folder(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path / "broker", tmp_path / "log")
    files.write(1, 2)
    assert as_java_reads(files.properties)["log.dirs"] == str(tmp_path / "log")
    assert (tmp_path / "log" / "meta.properties").exists()


@pytest.mark.parametrize("which", ["link", "open"])
def test_a_log_folder_open_to_others_is_refused(which: str, tmp_path: Path) -> None:
    shared, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if which == "link":
        shared.symlink_to(elsewhere)
    else:
        shared.mkdir(mode=0o755)
    with pytest.raises(BrokerStartFailed, match="shared"):
        ServerFiles(tmp_path / "broker", shared / "own-1").write(1, 2)
    assert list(elsewhere.iterdir()) == []


def test_the_log_in_memory_is_private_to_the_user(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path / "broker", tmp_path / "shared" / "own-1")
    files.write(1, 2)
    files.write(3, 4)
    assert [folder.stat().st_mode & 0o777 for folder in (files.data, files.data.parent)] == [0o700, 0o700]


def test_a_new_folder_gets_a_cluster_id(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path)
    files.write(1, 2)
    meta = as_java_reads(files.data / "meta.properties")
    assert (meta["version"], meta["node.id"]) == ("1", "1")
    for name in ("cluster.id", "directory.id"):
        assert not meta[name].startswith("-")
        assert len(base64.urlsafe_b64decode(meta[name] + "==")) == 16
    assert meta["cluster.id"] != meta["directory.id"]


def test_a_restart_on_other_ports_keeps_data_and_cluster_id(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path)
    files.write(1, 2)
    identity = (files.data / "meta.properties").read_bytes()
    (files.data / "payments-0").mkdir()
    files.write(3, 4)
    assert (files.data / "meta.properties").read_bytes() == identity
    assert (files.data / "payments-0").is_dir()
    assert "127.0.0.1:3" in as_java_reads(files.properties)["advertised.listeners"]
    assert not list(files.data.glob("*.new"))


def test_two_brokers_have_different_cluster_ids(tmp_path: Path) -> None:
    first, second = ServerFiles(tmp_path / "a"), ServerFiles(tmp_path / "b")
    first.write(1, 2)
    second.write(3, 4)
    identities = [as_java_reads(each.data / "meta.properties")["cluster.id"] for each in (first, second)]
    assert identities[0] != identities[1]


def test_a_folder_name_may_contain_other_than_ascii_letters(tmp_path: Path) -> None:
    files = ServerFiles(tmp_path / "zoë-дом")
    files.write(1, 2)
    assert as_java_reads(files.properties)["log.dirs"] == str(files.data)
