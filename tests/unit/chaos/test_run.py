"""The topics of a run, and what is left in its folder."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.chaos.options import ChaosOptions
from tailrace.chaos.pipeline_process import on_private_broker
from tailrace.chaos.run import JOURNAL_FILE, _locked, _open_journal, topics_of
from tailrace.chaos.screen import ChaosScreen
from tailrace.errors import OptionRefused
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline

SCREEN = ChaosScreen(Console(file=io.StringIO()))
SOURCE = KafkaSource("orders", "id long")


def pipeline(source: object = SOURCE, sink: KafkaSink | None = None) -> Pipeline:
    return Pipeline("shop", source, lambda df: df, sink or KafkaSink("priced"))  # type: ignore[arg-type]


def test_the_topics_are_those_of_the_pipeline() -> None:
    assert topics_of(pipeline(), ChaosOptions()) == ("orders", ("priced", "shop.dead-letters"))


def test_a_pattern_or_several_topics_become_one() -> None:
    for source in (KafkaSource(schema="id long", pattern="o.*"), KafkaSource(["a", "b"], "id long")):
        assert topics_of(pipeline(source), ChaosOptions())[0] == "shop-input"


def test_routed_topics_must_be_listed() -> None:
    routed = pipeline(sink=KafkaSink(topic_column="target"))
    with pytest.raises(OptionRefused, match="output topics"):
        topics_of(routed, ChaosOptions())
    assert topics_of(routed, ChaosOptions(topics=("a", "b")))[1] == ("a", "b", "shop.dead-letters")


def test_several_sources_are_refused() -> None:
    with pytest.raises(OptionRefused, match="2 sources"):
        topics_of(pipeline((SOURCE, KafkaSource("more", "id long"))), ChaosOptions())


def test_the_pipeline_reads_everything_from_the_private_broker_without_login() -> None:
    secured = {"kafka.security.protocol": "SSL", "kafka.sasl.mechanism": "PLAIN", "maxOffsetsPerTrigger": "5"}
    given = pipeline(KafkaSource(schema="id long", pattern="in.*", options=secured), KafkaSink("out", options=secured))
    source = on_private_broker(given, "shop-input").sources[0]
    assert (source.topic_names, source.pattern, source.starting) == (("shop-input",), None, "earliest")
    assert source.options == {"maxOffsetsPerTrigger": "5"}
    assert on_private_broker(given, "shop-input").sink.options == {"maxOffsetsPerTrigger": "5"}


def test_a_new_run_starts_with_an_empty_folder_and_an_interrupted_one_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").touch()
    _open_journal(tmp_path, "print", SCREEN)
    assert not (tmp_path / "checkpoint").exists()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").touch()
    assert _open_journal(tmp_path, "print", SCREEN).is_resumed
    assert (tmp_path / "checkpoint" / "metadata").exists()


def test_a_run_whose_small_disk_is_gone_starts_over(tmp_path: Path) -> None:
    _open_journal(tmp_path, "print", SCREEN)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "broker").mkdir()
    assert not _open_journal(tmp_path, "print", SCREEN).is_resumed
    assert not (tmp_path / "broker").exists()
    assert (tmp_path / JOURNAL_FILE).exists()


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    with _locked(tmp_path), pytest.raises(OptionRefused, match="another chaos run uses"), _locked(tmp_path):
        pass
