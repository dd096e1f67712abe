"""The certificate authorities that this machine trusts, in the format that Java reads.

A Java of the machine's own knows the machine's authorities. The obtained one knows only those it was built
with, and so cannot fetch through a company's inspecting proxy where the user's pip can.
"""

import ssl
import struct
from pathlib import Path

_MAGIC, _FORMAT_VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2


def write_truststore(path: Path) -> bool:
    """Write what Python's TLS trusts to ``path`` as a Java key store; return whether that is anything."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    entries = [struct.pack(">III", _MAGIC, _FORMAT_VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        entries.append(struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"authority-{number}") + struct.pack(">Q", 0))
        entries.append(_utf("X.509") + struct.pack(">I", len(certificate)) + certificate)
    # The checksum at the end of the format is keyed by a password, and is not looked at where none is given.
    path.write_bytes(b"".join(entries))
    return bool(certificates)


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
