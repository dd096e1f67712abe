import pytest

from tailrace.chaos.options import ChaosOptions, Fault, FaultTiming, faults_named, timing_named
from tailrace.errors import DurationInvalid, OptionRefused


def test_faults_come_in_turn() -> None:
    options = ChaosOptions(faults=(Fault.JVM, Fault.WORKERS))
    assert [options.fault(number) for number in range(3)] == [Fault.JVM, Fault.WORKERS, Fault.JVM]


def test_names_of_faults() -> None:
    assert faults_named("jvm, disk-full") == (Fault.JVM, Fault.DISK_FULL)


@pytest.mark.parametrize("text", ["", "jvm,power", ","])
def test_an_unknown_fault_is_refused_with_all_names(text: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        faults_named(text)
    assert all(str(each) in refused.value.fix for each in Fault)


def test_an_unknown_moment_is_refused() -> None:
    assert timing_named("boundary") is FaultTiming.BOUNDARY
    with pytest.raises(OptionRefused, match="invalid --at 'noon'"):
        timing_named("noon")


def test_kills_after_a_restart_need_a_restart() -> None:
    ChaosOptions(at=FaultTiming.RESTART, faults=(Fault.JVM, Fault.DRIVER, Fault.BOTH))
    with pytest.raises(OptionRefused, match="--fault workers"):
        ChaosOptions(at=FaultTiming.RESTART, faults=(Fault.JVM, Fault.WORKERS))


def test_an_executor_needs_a_cluster() -> None:
    ChaosOptions(faults=(Fault.EXECUTOR,), master="spark://127.0.0.1:7077")
    for master in (None, "local[4]"):
        with pytest.raises(OptionRefused, match="needs a cluster"):
            ChaosOptions(faults=(Fault.EXECUTOR,), master=master)


def test_a_cluster_on_other_machines_cannot_reach_the_broker() -> None:
    with pytest.raises(OptionRefused, match="cannot use the cluster"):
        ChaosOptions(master="spark://10.0.0.7:7077")


def test_options_of_the_run_are_checked_before_anything_starts() -> None:
    with pytest.raises(DurationInvalid):
        ChaosOptions(checkpoint_every="1s")
    with pytest.raises(DurationInvalid):
        ChaosOptions(progress_every="1ms")
    with pytest.raises(OptionRefused, match="delivery"):
        ChaosOptions(delivery="exactly-once")  # type: ignore[arg-type]
    with pytest.raises(OptionRefused, match="mode"):
        ChaosOptions(mode="slow")


def test_another_command_has_another_fingerprint() -> None:
    options = ChaosOptions()
    one = options.fingerprint("a.py", "g.py:f")
    assert one == ChaosOptions().fingerprint("a.py", "g.py:f")
    assert one != ChaosOptions(kills=6).fingerprint("a.py", "g.py:f")
    assert one != options.fingerprint("b.py", "g.py:f")
    assert one != options.fingerprint("a.py", "g.py:h")
