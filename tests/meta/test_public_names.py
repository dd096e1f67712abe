import subprocess
import sys

import pytest

import tailrace
import tailrace.testing

PUBLIC = [
    "KafkaSink",
    "KafkaSource",
    "Mode",
    "Pipeline",
    "TailraceError",
    "__version__",
    "check",
    "run",
    "session",
    "start",
]
TESTING = [
    "CHECKPOINT",
    "MODES",
    "Lineage",
    "Output",
    "OutputRecord",
    "Record",
    "at",
    "require_equal_modes",
    "run",
]


def test_public_names() -> None:
    """A name that is public once is a promise: changing this list is a decision, not an accident."""
    assert tailrace.__all__ == PUBLIC
    assert sorted(PUBLIC) == PUBLIC
    assert len(PUBLIC) <= 12


def test_dir_lists_the_public_names() -> None:
    assert dir(tailrace) == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_a_public_name_is_a_documented_class_or_function(name: str) -> None:
    # In a process of its own: what other tests have imported must not matter.
    program = f"import tailrace; value = tailrace.{name}; assert callable(value) and value.__doc__ and value.__module__"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("first", ["tailrace.start", "tailrace.run"])
def test_session_stays_a_function_after_other_imports(first: str) -> None:
    program = f"import tailrace\n{first}\nassert callable(tailrace.session), tailrace.session"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, stderr=subprocess.DEVNULL)


def test_an_unknown_name_raises_attribute_error() -> None:
    assert not hasattr(tailrace, "pipelines")


def test_public_names_of_the_test_kit() -> None:
    assert tailrace.testing.__all__ == TESTING
    assert len(TESTING) <= 12


@pytest.mark.parametrize("name", [name for name in TESTING if not name.isupper()])
def test_a_public_name_of_the_test_kit_is_a_documented_class_or_function(name: str) -> None:
    program = (
        f"from tailrace.testing import {name} as value\n"
        "assert callable(value) and value.__doc__ and value.__module__.startswith('tailrace.testing.')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_unknown_name_of_the_test_kit_raises_attribute_error() -> None:
    assert not hasattr(tailrace.testing, "bench_of_another_kind")
