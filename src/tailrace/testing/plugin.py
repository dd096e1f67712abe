"""The fixtures that pytest finds by itself once Tailrace is installed."""

import pytest

from tailrace.testing.rows import MODES


@pytest.fixture(params=MODES)
def every_mode(request: pytest.FixtureRequest) -> str:
    """Runs a test three times: in batch, in micro-batches and in real time."""
    return str(request.param)
