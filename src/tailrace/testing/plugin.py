"""What pytest finds by itself once Tailrace is installed."""

import pytest

from tailrace.testing.rows import MODES


def pytest_addoption(parser: pytest.Parser) -> None:
    """For a quicker look while a pipeline is written: fewer modes."""
    parser.getgroup("tailrace").addoption(
        "--tailrace-mode",
        action="append",
        choices=MODES,
        help="run tests with the fixture every_mode in this mode alone; several times for several modes",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Once for each mode."""
    if "every_mode" in metafunc.fixturenames:
        metafunc.parametrize("every_mode", metafunc.config.getoption("tailrace_mode") or MODES, indirect=True)


@pytest.fixture
def every_mode(request: pytest.FixtureRequest) -> str:
    """Runs a test three times: in batch, in micro-batches and in real time; ``--tailrace-mode`` chooses."""
    return str(request.param)
