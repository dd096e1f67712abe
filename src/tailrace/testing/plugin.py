"""The pytest plugin, found by pytest once Tailrace is installed."""

import pytest

from tailrace.testing.rows import MODES


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tailrace-mode``, which runs fewer modes for faster tests."""
    parser.getgroup("tailrace").addoption(
        "--tailrace-mode",
        action="append",
        choices=MODES,
        help="run tests with the fixture every_mode only in this mode; repeat the option for more modes",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test once for each mode."""
    if "every_mode" in metafunc.fixturenames:
        metafunc.parametrize("every_mode", metafunc.config.getoption("tailrace_mode") or MODES, indirect=True)


@pytest.fixture
def every_mode(request: pytest.FixtureRequest) -> str:
    """Run a test in batch, micro-batch and real time; ``--tailrace-mode`` chooses among them."""
    return str(request.param)
