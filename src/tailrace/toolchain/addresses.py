"""Other programs' output, without the network addresses in it.

The tools that fetch for Tailrace print where they fetch from. A company's mirror may have a key in its
address, and error texts end up in tickets, so no address leaves this package.
"""

import re

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\")>]+", re.IGNORECASE)
# The look-ahead spares Java class names and Maven groups, such as `java.net.ConnectException`.
_HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:org|com|net|io|dev)(?::\d+)?(?![\w.-])", re.IGNORECASE)


def without_addresses(text: str) -> str:
    """Return ``text`` with each URL and each host name replaced by a placeholder."""
    return _HOST.sub("<host>", _URL.sub("<address>", text))
