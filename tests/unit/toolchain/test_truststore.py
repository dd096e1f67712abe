import ssl
from pathlib import Path

import pytest

from tailrace.toolchain.truststore import write_truststore


class TwoAuthorities:
    def get_ca_certs(self, *, binary_form: bool) -> list[bytes]:
        assert binary_form
        return [b"first", b"second!"]


def test_java_can_read_the_truststore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ssl, "create_default_context", TwoAuthorities)
    assert write_truststore(tmp_path / "store")
    entry = b"\0\0\0\2" + b"\0\x0bauthority-%d" + bytes(8) + b"\0\5X.509"
    expected = b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\2"
    expected += entry % 0 + b"\0\0\0\5first" + entry % 1 + b"\0\0\0\7second!"
    assert (tmp_path / "store").read_bytes() == expected


def test_a_machine_without_certificate_authorities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TwoAuthorities, "get_ca_certs", lambda _self, binary_form: [] if binary_form else [b"text"])
    monkeypatch.setattr(ssl, "create_default_context", TwoAuthorities)
    assert not write_truststore(tmp_path / "store")
