"""Redact network addresses in the output of other programs.

Download tools print the URLs that they use. The URL of a company mirror may contain a key, and error texts end up
in tickets.
"""

import re

_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\")>]+", re.IGNORECASE)
# The look-ahead keeps Java class names and Maven groups, such as `java.net.ConnectException`.
_HOST = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:org|com|net|io|dev)(?::\d+)?(?![\w.-])", re.IGNORECASE)


def redact_addresses(text: str) -> str:
    """Return ``text`` with each URL and each host name replaced by a placeholder."""
    return _HOST.sub("<host>", _URL.sub("<address>", text))
