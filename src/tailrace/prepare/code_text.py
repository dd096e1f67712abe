"""A Python function as text: equal in every process, different if the code or the values that it uses differ.

The text has the function's bytecode, constants, defaults and closure, and the same of the user's own functions, classes
and modules that it refers to. A library counts with its name and version. Where a function is defined, its name and its
line numbers do not count.
"""

import dataclasses
import dis
import enum
import functools
import importlib.machinery
import inspect
import operator
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from logging import Logger
from pathlib import Path, PurePath
from re import Pattern
from typing import Any
from uuid import UUID

from pyspark.sql.types import DataType

from tailrace.frames.user_code import is_users

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, bytearray, type(...), type(NotImplemented), range, slice,
)  # fmt: skip
"""Types whose ``repr`` says everything about a value, but not about one of a class derived from them."""
_AS_WRITTEN = (
    date, time, timedelta, tzinfo, Decimal, Fraction, PurePath, UUID, types.GenericAlias, types.UnionType,
    operator.itemgetter, operator.attrgetter, operator.methodcaller,
)  # fmt: skip
"""Types whose ``repr`` says everything about a value."""
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter, types.MappingProxyType)
_PLAIN_BASES = {"abc", "typing"}
"""The modules whose classes add no state to an object."""
_NOT_CODE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__", "__slots__",
    "__match_args__", "__parameters__", "__abstractmethods__", "_abc_impl", "__firstlineno__", "__orig_bases__",
    "__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__annotate__", "__annotate_func__",
    "__annotations_cache__",
}  # fmt: skip
"""What a class has beside its code and values."""
_GENERATED = ("<string>", "dataclasses.py", "reprlib.py")
"""The files of the methods that ``dataclass`` and ``namedtuple`` make."""
_MISSING = object()


class Unstable(Exception):
    """A value has no stable text.

    Args:
        what: The value, in words.
        function: The function that uses it.
    """

    def __init__(self, what: str, function: str = "") -> None:
        super().__init__(f"{what} in {function}" if function else what)
        self.what = what
        self.function = function


def code_text(value: object) -> str:
    """Return a function, or a tuple with one, as text.

    Raises:
        Unstable: It uses a value that has none, which the message names.
    """
    text = _Text()
    try:
        text.add(value)
    except RecursionError as deep:
        raise Unstable("values that are nested too deeply") from deep
    return "\n".join(text.parts)


class _Text:
    """The text of values, written one after another."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """What has a number, kept because its number is by its address."""
        self._around: list[int] = []
        """The containers around the value that is being written."""

    def add(self, value: object, names: frozenset[str] = frozenset()) -> None:
        """Write a value; of a module, only what ``names`` names."""
        if isinstance(value, enum.Enum):
            self._named("enum", type(value).__qualname__, value.name)
        elif type(value) in _PLAIN or isinstance(value, _AS_WRITTEN):
            self._named(type(value).__name__, repr(value))
        elif isinstance(value, Pattern):
            self._named("pattern", repr(value.pattern), str(value.flags))
        elif isinstance(value, DataType):
            self._named("type", value.json())
        elif isinstance(value, Logger):
            self._named("logger")  # what is logged decides nothing
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif type(value) in _CONTAINERS or (isinstance(value, tuple) and hasattr(value, "_fields")):
            self._container(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, names)
        else:
            self._once(value)

    def _named(self, *words: str) -> None:
        self.parts.append(" ".join(f"{len(word)}:{word}" for word in words))

    def _once(self, value: object) -> None:
        """Write a function, a class or an object; the second time, only its number."""
        number = self._numbers.get(id(value))
        if number is not None:
            self._named("again", str(number))
            return
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        if isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        else:
            self._object(value)

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if is_own(code.co_filename):
            self._named("function")
            self._code(code)
            self._globals(function)
        else:
            self._library(function.__module__, function.__qualname__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                self._named("empty")
            else:
                self._used(code.co_name, content)

    def _used(self, name: str, value: object, names: frozenset[str] = frozenset()) -> None:
        """Write a value that a function uses; an error names the function, too."""
        try:
            self.add(value, names)
        except Unstable as unstable:
            raise Unstable(unstable.what, unstable.function or name) from unstable

    def _code(self, code: types.CodeType) -> None:
        self._named(
            "code",
            sha256(code.co_code + getattr(code, "co_exceptiontable", b"")).hexdigest(),
            *map(str, (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)),
            *(code.co_names + code.co_varnames + code.co_freevars + code.co_cellvars),
        )
        for constant in code.co_consts:
            self.add(constant)

    def _globals(self, function: types.FunctionType) -> None:
        names = frozenset(_all_names(function.__code__))
        for name in sorted(_loaded(function.__code__)):
            value = function.__globals__.get(name, _MISSING)
            self._named("global", name)
            if value is not _MISSING:
                self._used(function.__code__.co_name, value, names)
        for name in sorted(_imported(function.__code__)):
            self._import(name, function.__globals__.get("__package__") or "", names)

    def _import(self, name: str, package: str, names: frozenset[str]) -> None:
        """Write a module that a function imports when it is called, whether or not it is loaded here."""
        self._named("import", name)
        for known in filter(None, (name, f"{package}.{name}".rstrip("."))):
            if known in sys.modules:
                self._used(name, sys.modules[known], names | set(name.split(".")[1:]))
                return
        for file, content in sorted(own_sources(name, names).items()):
            self._named(file, sha256(content).hexdigest())

    def _module(self, module: types.ModuleType, names: frozenset[str]) -> None:
        """Write what is used of a module of the user's; of a library, its version."""
        if not is_own(getattr(module, "__file__", None) or ""):
            self._library(module.__name__, "")
            return
        key = id(module)
        if key in self._around:
            return
        self._around.append(key)
        for name in sorted(names & vars(module).keys()):
            if not name.startswith("__"):
                self._named("of module", name)
                self.add(vars(module)[name], names)
        self._around.pop()

    def _container(self, values: Any) -> None:
        if id(values) in self._around:
            self._named("itself")
            return
        self._around.append(id(values))
        self._named(type(values).__name__, str(len(values)))
        if isinstance(values, Mapping):
            for key, value in values.items():
                self.add(key)
                self.add(value)
        elif isinstance(values, set | frozenset):
            # In any order: that of a set depends on the process.
            self.parts += sorted(code_text(value) for value in values)
        else:
            for value in values:
                self.add(value)
        if isinstance(values, defaultdict):
            self.add(values.default_factory)
        self._around.pop()

    def _class(self, kind: type) -> None:
        if not _is_own_class(kind):
            self._library(kind.__module__, kind.__qualname__)
            return
        self._named("class")
        for base in kind.__bases__:
            self.add(base)
        if dataclasses.is_dataclass(kind):
            self._named(repr(vars(kind).get("__dataclass_params__")))
            for field in dataclasses.fields(kind):
                self._named("field", field.name)
                for default in (field.default, field.default_factory):
                    # Compared by its type: a class that was pickled has another object.
                    self.add(None if isinstance(default, type(dataclasses.MISSING)) else default)
        for name, member in vars(kind).items():
            if name not in _NOT_CODE and not name.startswith("_cloudpickle") and not _is_generated(member):
                self._named("member", name)
                self.add(member)

    def _object(self, value: object) -> None:
        """Write an object that is neither data nor a plain function or class."""
        wraps = _wrapped(value)
        if wraps is not None:
            self._named(type(value).__qualname__)
            for each in wraps:
                self.add(each)
        elif isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
            self._library(getattr(value, "__module__", None) or "", value.__qualname__)
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, types.ModuleType):
                self.add(owner)
        elif type(value).__module__ == "typing":
            self._named("typing", repr(value))
        elif isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            self._named("slot", value.__name__)
        elif _has_only_attributes(type(value)):
            self._instance(value)
        else:
            raise Unstable(f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", ""))

    def _instance(self, value: object) -> None:
        """Write an object of a class of the user's: the class and the attributes."""
        self._named("object")
        self.add(type(value))
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        for name in sorted({*getattr(value, "__dict__", {}), *slots}):
            self._named("attribute", name)
            self.add(inspect.getattr_static(value, name) if name not in slots else getattr(value, name))

    def _library(self, module: str | None, name: str) -> None:
        top = sys.modules.get((module or "").partition(".")[0])
        self._named("library", module or "", name, str(getattr(top, "__version__", "")))


def is_own(file: str) -> bool:
    """Return whether a file has code of the user: no library and no part of Python, but perhaps a notebook's cell."""
    return is_users(file) or (file.startswith("<") and not file.startswith("<frozen")) if file else False


def own_sources(name: str, names: Iterable[str], found: dict[str, bytes] | None = None) -> dict[str, bytes]:
    """Return the files of a module of the user's, and of those that it imports, without loading any.

    Args:
        name: The name of the module.
        names: Names that are imported from it, some of which may be modules.
        found: The files that are known already.
    """
    found = {} if found is None else found
    path: Sequence[str] | None = None
    for part in filter(None, name.split(".")):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return found
        path = spec.submodule_search_locations
        file = spec.origin
        if file is not None and file.endswith(".py") and is_own(file) and file not in found:
            found[file] = Path(file).read_bytes()
            code = compile(found[file], file, "exec")
            for imported in sorted(_imported(code)):
                own_sources(imported, set(_all_names(code)), found)
    for each in sorted(names) if path is not None else ():
        if importlib.machinery.PathFinder.find_spec(each, path) is not None:
            own_sources(f"{name}.{each}", (), found)
    return found


def _is_own_class(kind: type) -> bool:
    if kind.__module__ == "builtins":
        return False
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return is_own(file) if file is not None else module is None or kind.__module__ == "__main__"


def _has_only_attributes(kind: type) -> bool:
    """Return whether the objects of a class have no other state than attributes that the user's code knows."""
    bases = (base for base in kind.__mro__ if base is not object and base.__module__ not in _PLAIN_BASES)
    return kind is not object and all(map(_is_own_class, bases))


def _is_generated(member: object) -> bool:
    return isinstance(member, types.FunctionType) and member.__code__.co_filename.endswith(_GENERATED)


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def _wrapped(value: Any) -> tuple[object, ...] | None:
    """Return what a wrapper around a function consists of; None for anything else."""
    parts: tuple[object, ...]
    match value:
        case functools.partial():
            parts = (value.func, value.args, value.keywords)
        case types.MethodType():
            parts = (value.__func__, value.__self__)
        case staticmethod() | classmethod():
            parts = (value.__func__,)
        case property():
            parts = (value.fget, value.fset)
        case functools.cached_property():
            parts = (value.func,)
        case functools._lru_cache_wrapper():  # noqa: SLF001 - what functools.cache returns has no other name
            parts = (value.__wrapped__,)
        case _:
            return None
    return parts


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names_of(code: types.CodeType, is_wanted: Callable[[str], bool]) -> set[str]:
    """Return the names that some instructions of a function use."""
    found = (each for part in _codes(code) for each in dis.get_instructions(part) if is_wanted(each.opname))
    return {str(each.argval) for each in found}


def _loaded(code: types.CodeType) -> set[str]:
    return _names_of(code, lambda name: name in ("LOAD_GLOBAL", "LOAD_NAME"))


def _imported(code: types.CodeType) -> set[str]:
    return _names_of(code, lambda name: name == "IMPORT_NAME")


def _all_names(code: types.CodeType) -> Iterator[str]:
    for part in _codes(code):
        yield from part.co_names
