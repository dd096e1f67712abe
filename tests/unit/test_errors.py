import pickle

import pytest

from tailrace import errors
from tailrace.errors import BrokerUnreachable, KafkaError, TailraceError


def test_an_error_has_code_what_why_and_fix() -> None:
    error = BrokerUnreachable("no broker responds", why="refused", fix="start one", detail="a stack trace")
    assert str(error) == "no broker responds [BROKER_UNREACHABLE]\nwhy: refused\nfix: start one"


def test_missing_parts_take_no_line() -> None:
    assert str(TailraceError("it broke")) == "it broke [TAILRACE_ERROR]"


def test_a_base_class_catches_its_branch() -> None:
    with pytest.raises(KafkaError):
        raise BrokerUnreachable("gone")


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.PipelineNotFound, 2),
        (errors.DurationInvalid, 2),
        (errors.BrokerUnreachable, 2),
        (errors.JavaMissing, 2),
        (errors.UserCodeFailed, 1),
        (errors.QueryFailed, 1),
        (errors.SlotsMissing, 1),
        (errors.CheckpointInUse, 1),
    ],
)
def test_exit_codes(kind: type[TailraceError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_errors_can_be_pickled() -> None:
    error = BrokerUnreachable("no broker responds", why="refused", fix="start one", detail="trace")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is BrokerUnreachable
    assert (str(again), again.detail) == (str(error), "trace")
