import pytest

from tailrace.tuning import (
    SETTINGS,
    SHUFFLE_PARTITIONS,
    UNWORKABLE,
    Scope,
    Setting,
    UnworkableValue,
    query_settings,
    soft_settings,
    unworkable,
)


def test_no_key_is_set_twice() -> None:
    keys = [setting.key for setting in SETTINGS]
    assert len(set(keys)) == len(keys)
    assert SHUFFLE_PARTITIONS not in keys, "it is derived for each query"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_has_a_reason_and_an_effect(setting: Setting) -> None:
    assert setting.reason.endswith(".")
    assert setting.effect


@pytest.mark.parametrize(("realtime", "local"), [(True, True), (True, False), (False, True), (False, False)])
def test_tailrace_never_refuses_its_own_settings(realtime: bool, local: bool) -> None:
    mine = soft_settings(Scope.CONTEXT, local=local) | query_settings(realtime=realtime, local=local)
    assert list(unworkable(mine, shuffles=3)) == []


def test_loopback_and_the_local_file_manager_are_for_local_masters() -> None:
    elsewhere = soft_settings(Scope.CONTEXT, local=False) | query_settings(realtime=True, local=False)
    here = soft_settings(Scope.CONTEXT, local=True) | query_settings(realtime=True, local=True)
    assert set(here) - set(elsewhere) == {
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.sql.streaming.checkpointFileManagerClass",
    }


def test_both_modes_write_the_same_checkpoint_format() -> None:
    batch, realtime = query_settings(realtime=False, local=True), query_settings(realtime=True, local=True)
    state = {key: value for key, value in batch.items() if "stateStore" in key}
    assert state["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
    assert state["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
    assert state.items() <= realtime.items()


def test_micro_batch_gets_no_real_time_settings() -> None:
    only_realtime = set(soft_settings(Scope.REALTIME, local=True))
    assert only_realtime
    assert only_realtime.isdisjoint(query_settings(realtime=False, local=True))


@pytest.mark.parametrize("value", UNWORKABLE, ids=lambda value: value.key)
def test_settings_that_cannot_work_have_a_reason(value: UnworkableValue) -> None:
    given = value.bad[0].upper()  # Spark does not mind the case of true and false
    assert list(unworkable({value.key: given}, shuffles=1)) == [value]
    assert value.why


@pytest.mark.parametrize("key", ["spark.speculation", "spark.dynamicAllocation.enabled"])
def test_settings_that_only_affect_a_shuffle_are_accepted_without_one(key: str) -> None:
    assert list(unworkable({key: "true"}, shuffles=0)) == []
    assert [value.key for value in unworkable({key: "true"}, shuffles=1)] == [key]


def test_other_values_of_the_same_settings_are_accepted() -> None:
    assert list(unworkable({value.key: "false" for value in UNWORKABLE}, shuffles=1)) == []
