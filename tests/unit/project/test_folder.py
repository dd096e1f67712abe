import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailrace as tr
from tailrace.errors import OptionRefused
from tailrace.prepare.loader import load_pipeline
from tailrace.project.folder import FILES, LONGEST_NAME, make_project, pipeline_name


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def pipeline_called(name: str) -> tr.Pipeline:
    return tr.Pipeline(
        name=name,
        source=tr.KafkaSource("payments", schema="id long"),
        transform=lambda frame: frame,
        sink=tr.KafkaSink("decisions"),
    )


def test_a_new_folder_has_every_file_without_placeholders(here: Path) -> None:
    project = make_project("shop")
    assert project.pipeline == "shop"
    assert contents(here / "shop") == {"pipeline.py", "test_pipeline.py", "README.md", ".gitignore"}
    for path in (here / "shop").iterdir():
        assert "@" not in path.read_text(), path
    assert (here / "shop" / "README.md").read_text().startswith("# shop\n")
    assert ".tailrace/\n" in (here / "shop" / ".gitignore").read_text()


def test_every_template_is_used() -> None:
    templates = resources.files("tailrace.project").joinpath("template").iterdir()
    assert {each.name for each in templates} == set(FILES.values())


def test_the_created_file_defines_a_pipeline_of_that_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "pipeline", None)  # type: ignore[arg-type]
    make_project("shop")
    pipeline = load_pipeline("shop/pipeline.py")
    assert (pipeline.name, pipeline.dead_letter_topic) == ("shop", "shop.dead-letters")
    assert (pipeline.sources[0].topic_names, pipeline.sink.topic) == (("payments",), "decisions")


@pytest.mark.parametrize("name", ["pipeline.py", "test_pipeline.py"])
def test_the_created_code_fits_in_88_columns(here: Path, name: str) -> None:
    make_project("shop")
    lines = (here / "shop" / name).read_text().splitlines()
    assert not [line for line in lines if len(line) > 88]


def test_an_empty_folder_is_accepted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "empty").mkdir()
    assert make_project("empty/").pipeline == "empty"
    (here / "current").mkdir()
    monkeypatch.chdir(here / "current")
    assert make_project(".").pipeline == "current"
    assert contents(here / "current") == set(FILES)


def test_parent_folders_are_created(here: Path) -> None:
    assert make_project("jobs/cards/shop").pipeline == "shop"
    assert contents(here / "jobs" / "cards" / "shop") == set(FILES)


def test_a_folder_with_files_is_unchanged(here: Path) -> None:
    (here / "shop").mkdir()
    (here / "shop" / ".hidden").write_text("mine")
    with pytest.raises(OptionRefused, match="not empty") as refused:
        make_project("shop")
    assert refused.value.fix
    assert contents(here / "shop") == {".hidden"}


def test_a_second_creation_is_refused(here: Path) -> None:
    make_project("shop")
    (here / "shop" / "pipeline.py").write_text("mine")
    with pytest.raises(OptionRefused, match="not empty"):
        make_project("shop")
    assert (here / "shop" / "pipeline.py").read_text() == "mine"


def test_an_existing_file_is_refused(here: Path) -> None:
    (here / "shop").write_text("mine")
    with pytest.raises(OptionRefused, match="is not a folder"):
        make_project("shop")
    assert (here / "shop").read_text() == "mine"


@pytest.mark.parametrize("place", ["file/shop", "x" * 90 + "/" + "é" * 200, "nowhere/shop"])
def test_a_folder_that_cannot_be_created_is_refused_with_the_reason(here: Path, place: str) -> None:
    (here / "file").write_text("")
    (here / "nowhere").symlink_to(here / "absent" / "target")
    with pytest.raises(OptionRefused) as refused:
        make_project(place)
    assert refused.value.why
    assert refused.value.fix


@pytest.mark.parametrize("name", ["", "  ", "/", "...", "---", "日本", "a\nb", "a\0b", "a\x1bb", "\udcff"])
def test_an_invalid_name_is_refused(here: Path, name: str) -> None:
    with pytest.raises(OptionRefused, match="invalid project name") as refused:
        make_project(name)
    assert "tailrace init shop" in refused.value.fix
    assert contents(here) == set()


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("shop", "shop"),
        ("My shop", "My-shop"),
        ("card payments (new)", "card-payments-new"),
        ("café", "cafe"),
        (".hidden", "hidden"),
        ("a.b_c-d", "a.b_c-d"),
        ("2026", "2026"),
    ],
)
def test_folder_names_become_pipeline_names(folder: str, name: str) -> None:
    assert pipeline_name(folder) == name


def test_a_name_too_long_for_its_topics_is_refused() -> None:
    assert pipeline_name("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    with pytest.raises(OptionRefused, match="too long"):
        pipeline_name("x" * (LONGEST_NAME + 1))


@given(st.text(min_size=1, max_size=120))
def test_every_accepted_name_is_a_valid_pipeline_name(folder: str) -> None:
    try:
        name = pipeline_name(folder)
    except OptionRefused:
        return
    assert pipeline_called(name).name == name
    assert pipeline_name(name) == name
