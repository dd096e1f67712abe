import json
from pathlib import Path
from types import ModuleType

import pytest

from tailrace.errors import TopicMissing, UserCodeFailed
from tailrace.frames.user_code import user_code

WHAT = "the function of pipeline 'fraud'"


@pytest.fixture
def users_module(tmp_path: Path) -> ModuleType:
    """A file of the user's, with functions that go wrong."""
    path = tmp_path / "fraud.py"
    path.write_text(
        "import json, sys\n"
        "def divide():\n    return 1 / 0\n"
        "def in_library():\n    json.loads('{')\n"
        "def leave():\n    sys.exit(3)\n"
        "def lines():\n    raise ValueError('first\\nsecond\\nthird')\n"
        "def silent():\n    raise ValueError\n"
        "def pivot():\n    raise ValueError('pivot is not supported on a streaming DataFrames/Datasets')\n"
    )
    module = ModuleType("fraud")
    exec(compile(path.read_text(), str(path), "exec"), vars(module))
    return module


def failure(users_module: ModuleType, name: str) -> UserCodeFailed:
    with pytest.raises(UserCodeFailed) as failed, user_code(WHAT):
        getattr(users_module, name)()
    return failed.value


def test_an_exception_has_the_users_line(users_module: ModuleType, tmp_path: Path) -> None:
    error = failure(users_module, "divide")
    assert error.what == f"{WHAT} raised ZeroDivisionError at {tmp_path}/fraud.py line 3 in divide: division by zero"
    assert "Traceback" not in str(error)
    assert "Traceback" in error.detail
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_the_line_is_the_users_not_a_librarys(users_module: ModuleType, tmp_path: Path) -> None:
    error = failure(users_module, "in_library")
    assert f"at {tmp_path}/fraud.py line 5 in in_library" in error.what
    assert str(Path(json.__file__).parent) in error.detail


def test_sys_exit_is_an_error(users_module: ModuleType) -> None:
    error = failure(users_module, "leave")
    assert "called sys.exit(3)" in error.what
    assert "line 7 in leave" in error.what
    assert "__name__" in error.fix


def test_a_long_message_is_one_line_with_the_rest_in_the_detail(users_module: ModuleType) -> None:
    error = failure(users_module, "lines")
    assert error.what.endswith(": first")
    assert "third" in error.detail


def test_an_exception_without_a_message_is_named(users_module: ModuleType) -> None:
    assert failure(users_module, "silent").what.endswith(": ValueError()")


def test_code_without_an_exception_passes() -> None:
    with user_code(WHAT):
        done = True
    assert done


@pytest.mark.parametrize("passes", [TopicMissing("topic 'x' does not exist"), KeyboardInterrupt()])
def test_tailraces_errors_and_ctrl_c_pass_unchanged(passes: BaseException) -> None:
    with pytest.raises(type(passes)) as raised, user_code(WHAT):
        raise passes
    assert raised.value is passes


@pytest.mark.parametrize("bare", [SyntaxError(), SyntaxError("")])
def test_a_syntax_error_is_reported(bare: SyntaxError) -> None:
    with pytest.raises(UserCodeFailed), user_code(WHAT):
        raise bare


def test_a_pivot_without_values_has_a_fix(users_module: ModuleType) -> None:
    assert "F.sum(F.when(" in failure(users_module, "pivot").fix
    assert "F.when" not in failure(users_module, "lines").fix
