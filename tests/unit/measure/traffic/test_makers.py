import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import PipelineNotFound, UserCodeFailed
from tailrace.measure.traffic.records import (
    Events,
    Generated,
    Payments,
    Records,
    Replayed,
    as_settings,
    event_maker,
    load_function,
    maker,
    payment_maker,
    save_for_replay,
)

Pairs = list[tuple[bytes | None, bytes]]
GENERATORS = """
def plain(number):
    return {"n": number}
def keyed(number):
    return f"key-{number}", [number, "\\u00e4"]
def text(number):
    return "x" * number
def raw(number):
    return b"\\xff", b"\\x00"
def keyless(number):
    return None, "value"
def nothing(number):
    return None
def number_as_key(number):
    return number, "value"
constant = 5
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def generators(tmp_path: Path) -> str:
    (tmp_path / "generators.py").write_text(GENERATORS)
    return str(tmp_path / "generators.py")


@pytest.mark.parametrize("records", [Payments(), Events(200), Generated("a.py", "f"), Replayed("records.npz")])
def test_settings_round_trip_through_json(records: Records) -> None:
    settings = json.loads(json.dumps(as_settings(records)))
    kind = settings.pop("kind")
    assert kind == type(records).__name__.lower()
    assert type(records)(**settings) == records


def test_payments_and_events_have_their_makers() -> None:
    assert maker(as_settings(Payments()))(3, 4) == payment_maker()(3, 4)
    assert maker(as_settings(Events(150)))(3, 4) == event_maker(150)(3, 4)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("plain", (None, b'{"n": 3}')),
        ("keyed", (b"key-3", b'[3, "\\u00e4"]')),
        ("text", (None, b"xxx")),
        ("raw", (b"\xff", b"\x00")),
        ("keyless", (None, b"value")),
    ],
)
def test_a_users_function_returns_a_value_or_a_pair(
    generators: str, function: str, expected: tuple[bytes | None, bytes]
) -> None:
    assert maker(as_settings(Generated(generators, function)))(3, 99) == expected


@pytest.mark.parametrize(("function", "kind"), [("nothing", "NoneType"), ("number_as_key", "int")])
def test_an_invalid_record_is_an_error_with_the_functions_name(generators: str, function: str, kind: str) -> None:
    with pytest.raises(UserCodeFailed) as failed:
        maker(as_settings(Generated(generators, function)))(0, 0)
    assert failed.value.what == f"the generator {function} returned a {kind}"
    assert "pair of key and value" in failed.value.fix


def test_a_missing_function_is_an_error(generators: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineNotFound, match="no file"):
        load_function(str(tmp_path / "absent.py"), "plain")
    for name in ("absent", "constant"):
        with pytest.raises(PipelineNotFound) as failed:
            load_function(generators, name)
        assert failed.value.what.endswith(f"has no function {name}")


def test_a_generator_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "beside_the_generator.py").write_text("WORD = 'hello'\n")
    (tmp_path / "importing.py").write_text(
        "from beside_the_generator import WORD\ndef make(number):\n    return WORD\n"
    )
    assert load_function(str(tmp_path / "importing.py"), "make")(0) == "hello"


@given(records=st.lists(st.tuples(st.none() | st.binary(max_size=20), st.binary(max_size=40)), min_size=1, max_size=30))
def test_replay_repeats_the_saved_records(tmp_path_factory: pytest.TempPathFactory, records: Pairs) -> None:
    file = tmp_path_factory.mktemp("replay") / "records.npz"
    make = maker(as_settings(save_for_replay(records, file)))
    assert [make(number, 0) for number in range(2 * len(records))] == [*records, *records]
    assert make(-1, 0) == records[-1], "a burst before the plan takes the last ones"


def test_replay_distinguishes_no_key_and_an_empty_key(tmp_path: Path) -> None:
    records: Pairs = [(None, b"a"), (b"", b"b"), (b"k", b"")]
    make = maker(as_settings(save_for_replay(records, tmp_path / "records.npz")))
    assert [make(number, 0) for number in range(3)] == records
