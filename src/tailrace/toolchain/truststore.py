"""Write the certificate authorities that this machine trusts as a Java truststore.

An installed Java usually trusts the machine's authorities. The downloaded runtime trusts only the authorities that it
was built with, so without this file it cannot download through a company's TLS-inspecting proxy, although pip can.
"""

import ssl
import struct
from pathlib import Path

_MAGIC, _FORMAT_VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2


def write_truststore(path: Path) -> bool:
    """Write Python's trusted authorities to ``path`` as a Java keystore (JKS); return False if there are none."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    entries = [struct.pack(">III", _MAGIC, _FORMAT_VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        entries.append(struct.pack(">I", _TRUSTED_CERTIFICATE) + _utf(f"authority-{number}") + struct.pack(">Q", 0))
        entries.append(_utf("X.509") + struct.pack(">I", len(certificate)) + certificate)
    # The format ends with a password-keyed checksum, which Java ignores if it gets no password.
    path.write_bytes(b"".join(entries))
    return bool(certificates)


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
