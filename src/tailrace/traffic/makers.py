"""Where a load's records come from: made up here, made by a function of the user's, or replayed from a topic."""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.errors import PipelineNotFound, UserCodeFailed
from tailrace.traffic.events import event_maker
from tailrace.traffic.payments import payment_maker

Maker = Callable[[int, int], tuple[bytes | None, bytes]]
"""From a record's number and intended send time to its key and value."""


@dataclass(frozen=True)
class Payments:
    """Card payments, as in the demo."""


@dataclass(frozen=True)
class Events:
    """Events of a fixed size."""

    payload_bytes: int = 128


@dataclass(frozen=True)
class Generated:
    """What a function of the user's returns for 0, 1, 2, ...: a value, or a pair of key and value."""

    file: str
    function: str


@dataclass(frozen=True)
class Replayed:
    """Records of a topic, saved in a file, over and over in their order."""

    file: str


Records = Payments | Events | Generated | Replayed
_KINDS: dict[str, type[Records]] = {
    "payments": Payments,
    "events": Events,
    "generated": Generated,
    "replayed": Replayed,
}


def as_settings(records: Records) -> dict[str, Any]:
    """For the process that makes them."""
    name = next(name for name, kind in _KINDS.items() if type(records) is kind)
    return {"kind": name, **asdict(records)}


def maker(settings: Mapping[str, Any]) -> Maker:
    """The function that makes the records which settings describe."""
    given = dict(settings)
    records = _KINDS[given.pop("kind")](**given)
    match records:
        case Payments():
            return payment_maker()
        case Events():
            return event_maker(records.payload_bytes)
        case Generated():
            return _generated(load_function(records.file, records.function), records.function)
        case Replayed():
            return _replayed(Path(records.file))


def load_function(file: str, name: str) -> Callable[[int], Any]:
    """The function of that name in a Python file.

    Raises:
        PipelineNotFound: There is no such file, or no such function in it.
    """
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise PipelineNotFound(f"there is no file {file}", fix="name the generator as FILE:FUNCTION")
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineNotFound(
            f"{file} has no function {name}", fix=f"define it: def {name}(number): return {{...}}, or name another"
        )
    return found  # type: ignore[no-any-return]


def save_for_replay(records: list[tuple[bytes | None, bytes]], file: Path) -> Replayed:
    """Keep keys and values in a file that a load replays."""
    keys = np.array([key if key is not None else b"" for key, _ in records], dtype=object)
    values = np.array([value for _, value in records], dtype=object)
    keyless = np.array([key is None for key, _ in records], dtype=bool)
    lengths = [np.array([len(each) for each in column], dtype=np.int64) for column in (keys, values)]
    np.savez(
        file,
        keys=np.frombuffer(b"".join(keys), dtype=np.uint8),
        values=np.frombuffer(b"".join(values), dtype=np.uint8),
        key_lengths=lengths[0],
        value_lengths=lengths[1],
        keyless=keyless,
    )
    return Replayed(str(file))


def _replayed(file: Path) -> Maker:
    with np.load(file) as saved:
        keys = _split(saved["keys"].tobytes(), saved["key_lengths"])
        values = _split(saved["values"].tobytes(), saved["value_lengths"])
        keyless = saved["keyless"].tolist()
    records = [(None if bare else key, value) for key, value, bare in zip(keys, values, keyless, strict=True)]

    def make(sequence: int, _due_ns: int) -> tuple[bytes | None, bytes]:
        return records[sequence % len(records)]

    return make


def _split(joined: bytes, lengths: Any) -> list[bytes]:
    ends = np.cumsum(lengths)
    return [joined[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _generated(function: Callable[[int], Any], name: str) -> Maker:
    def make(sequence: int, _due_ns: int) -> tuple[bytes | None, bytes]:
        made = function(sequence)
        key, value = made if isinstance(made, tuple) and len(made) == 2 else (None, made)
        return None if key is None else _as_bytes(key, name), _as_bytes(value, name)

    return make


def _as_bytes(given: Any, name: str) -> bytes:
    match given:
        case bytes():
            return given
        case str():
            return given.encode()
        case dict() | list():
            return json.dumps(given).encode()
        case _:
            raise UserCodeFailed(
                f"the generator {name} returned a {type(given).__name__}",
                fix="return a dictionary, text or bytes, or a pair of key and value",
            )
