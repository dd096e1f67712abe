from tailrace.chaos.outputs import NO_ORIGIN
from tailrace.chaos.receiver import Recovery
from tailrace.measure.traffic.probe import origin_number


def test_output_of_a_record_that_was_sent_after_the_fault() -> None:
    recovery = Recovery({0: 100, 1: 50}, not_before=0.0)
    for origin in (origin_number(0, 99), origin_number(1, 49), origin_number(7, 1000)):
        recovery.note(origin, 1.0)
        assert recovery.at is None
    recovery.note(origin_number(1, 50), 2.0)
    recovery.note(origin_number(0, 100), 3.0)
    assert recovery.at == 2.0


def test_output_without_coordinates_counts_when_none_can_be_from_before() -> None:
    recovery = Recovery({0: 100}, not_before=5.0)
    recovery.note(NO_ORIGIN, 4.9)
    assert recovery.at is None
    recovery.note(NO_ORIGIN, 5.0)
    assert recovery.at == 5.0
