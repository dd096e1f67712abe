import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.types import StructType

from tailrace import spark_session
from tailrace.errors import DefinitionError, PipelineNotFound, UserCodeFailed
from tailrace.prepare import loader
from tailrace.prepare.loader import load_pipeline
from tailrace.spark_jvm import PrelaunchedJvm

HEAD = "import tailrace as tr\n"


def definition(name: str, variable: str = "pipeline") -> str:
    return (
        f'{variable} = tr.Pipeline(name="{name}", source=tr.KafkaSource("in", schema="a int"), '
        'transform=lambda frame: frame, sink=tr.KafkaSink("out"))\n'
    )


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in; what a test imports from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text)
    return path


def test_the_only_pipeline_of_a_file_needs_no_name(here: Path) -> None:
    path = write(here, "job_only.py", definition("fraud", "anything"))
    assert load_pipeline(str(path)).name == "fraud"
    assert load_pipeline("job_only.py").name == "fraud"


def test_a_pipeline_with_two_names_is_still_one(here: Path) -> None:
    write(here, "job_alias.py", definition("fraud") + "same = pipeline\n")
    assert load_pipeline("job_alias.py").name == "fraud"


def test_among_several_a_name_chooses(here: Path) -> None:
    write(here, "job_two.py", definition("one", "first") + definition("two", "second"))
    assert load_pipeline("job_two.py:second").name == "two"
    with pytest.raises(PipelineNotFound) as refused:
        load_pipeline("job_two.py")
    assert "first, second" in refused.value.what
    assert refused.value.fix == "name one: job_two.py:first"


def test_a_module_is_found_from_the_current_folder(here: Path) -> None:
    write(here, "jobs_package/__init__.py", "")
    write(here, "jobs_package/fraud.py", definition("fraud"))
    assert load_pipeline("jobs_package.fraud:pipeline").name == "fraud"
    assert load_pipeline("jobs_package.fraud").name == "fraud"


def test_a_file_may_import_its_neighbours_from_anywhere(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(here, "sub/job_neighbour_helper.py", "NAME = 'from-neighbour'\n")
    path = write(
        here,
        "sub/job_importing.py",
        "import job_neighbour_helper\n" + definition("x").replace('"x"', "job_neighbour_helper.NAME"),
    )
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load_pipeline(str(path)).name == "from-neighbour"


def test_functions_of_a_file_can_be_pickled_by_reference(here: Path) -> None:
    write(
        here,
        "job_pickled.py",
        "def decide(frame):\n    return frame\n" + definition("x").replace("lambda frame: frame", "decide"),
    )
    transform = load_pipeline("job_pickled.py").transform
    assert getattr(sys.modules[transform.__module__], transform.__name__) is transform


@pytest.mark.parametrize("reference", ["absent.py", "absent.py:pipeline", "./absent.py", "folder/absent.py"])
def test_a_file_that_is_not_there(reference: str) -> None:
    with pytest.raises(PipelineNotFound, match="there is no file"):
        load_pipeline(reference)


@pytest.mark.parametrize("reference", ["absent_module_x", "absent_module_x:pipeline", "absent_module_x.y:z", ""])
def test_a_module_that_is_not_there(reference: str) -> None:
    with pytest.raises(PipelineNotFound, match="there is no module"):
        load_pipeline(reference)


def test_a_dot_is_no_module() -> None:
    with pytest.raises(PipelineNotFound):
        load_pipeline(".")


def test_a_file_without_a_pipeline(here: Path) -> None:
    write(here, "job_empty.py", "x = 1\n")
    with pytest.raises(PipelineNotFound, match="defines no pipeline"):
        load_pipeline("job_empty.py")


def test_a_name_that_is_not_there_or_is_something_else(here: Path) -> None:
    write(here, "job_names.py", definition("fraud", "good") + "x = 1\n")
    with pytest.raises(PipelineNotFound, match="has no name 'bad'") as absent:
        load_pipeline("job_names.py:bad")
    assert absent.value.fix == "use job_names.py:good"
    with pytest.raises(PipelineNotFound, match=r"x in job_names\.py is a int, not a Pipeline"):
        load_pipeline("job_names.py:x")


def test_a_file_that_is_not_python(here: Path) -> None:
    path = write(here, "notes.txt", "")
    with pytest.raises(PipelineNotFound, match="is not a Python file"):
        load_pipeline(str(path))


def test_an_exception_in_a_file_is_reported_with_its_line(here: Path) -> None:
    path = write(here, "job_raising.py", "\nx = {}['missing']\n")
    with pytest.raises(UserCodeFailed) as failed:
        load_pipeline("job_raising.py")
    assert f"KeyError at {path.name} line 3" in failed.value.what.replace(str(here) + "/", "")


def test_a_syntax_error_in_a_file_is_reported_with_its_line(here: Path) -> None:
    write(here, "job_syntax.py", "x = = 1\n")
    with pytest.raises(UserCodeFailed, match=r"SyntaxError at .*job_syntax\.py line 2: invalid syntax"):
        load_pipeline("job_syntax.py")


@pytest.mark.parametrize("broken", ["raise RuntimeError('boom')\n", "import a_module_that_is_not_there\n"])
def test_a_package_that_raises_is_the_users_code(here: Path, broken: str) -> None:
    write(here, "jobs_broken/__init__.py", broken)
    write(here, "jobs_broken/fraud.py", definition("fraud"))
    with pytest.raises(UserCodeFailed, match=r"__init__\.py line 2"):
        load_pipeline("jobs_broken.fraud")


@pytest.mark.parametrize(("ending", "prelaunched"), [(".py", False), (":pipeline", True)])
def test_a_file_that_needs_spark_runs_once(
    here: Path, monkeypatch: pytest.MonkeyPatch, ending: str, prelaunched: bool
) -> None:
    """A type in text, as in ``@udf("double")``, is read by Spark, which is started for that."""

    def start(conf: Mapping[str, str] | None) -> None:
        started.append(conf)
        monkeypatch.setattr(SparkContext, "_active_spark_context", Context())

    started: list[Mapping[str, str] | None] = []
    settings = {"spark.master": "spark://127.0.0.1:7077"}
    if prelaunched:
        monkeypatch.setattr(spark_session, "_prelaunched", PrelaunchedJvm(settings, lambda: None))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(spark_session, "replaceable_session", start)
    monkeypatch.setattr(loader, "replaceable_session", start, raising=False)
    name = f"typed_{secrets.token_hex(4)}"
    write(
        here,
        f"{name}.py",
        "from pyspark.sql.types import StructType\n"
        "with open('runs.txt', 'a') as runs:\n    runs.write('run ')\n"
        "schema = StructType.fromDDL('a long')\n" + definition("typed"),
    )
    assert load_pipeline(f"{name}{ending}").name == "typed"
    assert started == [settings if prelaunched else None], "once, with the settings of the run"
    assert (here / "runs.txt").read_text() == "run "
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    with pytest.raises(PySparkRuntimeError, match="SESSION_OR_CONTEXT_NOT_EXISTS"):
        StructType.fromDDL("a long")


class Context:
    """A Spark context that reads every type as the same struct."""

    _jvm = "there"

    def _parse_ddl(self, _text: str) -> StructType:
        return StructType()


@pytest.mark.parametrize("name", ["taken_module", "__main__"])
def test_a_file_does_not_replace_another_module(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, sys.modules.get(name, ModuleType(name)))
    other = sys.modules.get(name)
    write(
        here,
        f"{name}.py",
        "def decide(frame):\n    return frame\n" + definition("x").replace("lambda frame: frame", "decide"),
    )
    transform = load_pipeline(f"{name}.py").transform
    assert sys.modules.get(name) is other
    assert getattr(sys.modules[transform.__module__], transform.__name__) is transform
    pickled = cloudpickle.dumps(transform)  # type: ignore[no-untyped-call]
    del sys.modules[transform.__module__]  # as in a worker, which cannot import it by that name
    assert cloudpickle.loads(pickled)("rows") == "rows"


@pytest.mark.parametrize("name", ["queue", "random", "colorsys"])
def test_a_file_with_the_name_of_a_standard_library_module_is_refused(here: Path, name: str) -> None:
    write(here, f"{name}.py", definition("x"))
    with pytest.raises(DefinitionError, match=f"{name}.py has the name of Python's module '{name}'") as refused:
        load_pipeline(f"{name}.py")
    assert refused.value.fix == f"rename the file: mv {name}.py {name}_pipeline.py"
    assert str(here) not in sys.path


def test_the_same_file_may_be_loaded_again(here: Path) -> None:
    write(here, "job_again.py", definition("one"))
    first = load_pipeline("job_again.py")
    write(here, "job_again.py", definition("another"))
    second = load_pipeline("job_again.py")
    assert (first.name, second.name) == ("one", "another")
    assert "job_again_2" not in sys.modules


@pytest.mark.parametrize(
    ("code", "reference"),
    [
        ("raise RuntimeError('boom')\n", "job_failing.py"),
        ("raise RuntimeError('boom')\n", "job_failing:pipeline"),
        ("x = 1\n", "job_failing.py"),
        (definition("x"), "job_failing.py:other"),
    ],
)
def test_a_failed_load_leaves_no_trace(here: Path, code: str, reference: str) -> None:
    write(here, "beside_failing.py", "")
    write(here, "job_failing.py", "import sys, beside_failing\nsys.path.append('/added')\n" + code)
    path, modules = list(sys.path), dict(sys.modules)
    with pytest.raises((PipelineNotFound, UserCodeFailed)):
        load_pipeline(reference)
    assert sys.path == path
    assert {name for name in sys.modules if name.endswith("_failing")} == set()
    assert all(sys.modules[name] is module for name, module in modules.items())
    write(here, "job_failing.py", definition("mended"))
    assert load_pipeline("job_failing.py").name == "mended"
