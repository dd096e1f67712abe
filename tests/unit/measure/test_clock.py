from tailrace.measure.schedule import Clock


class Monotonic:
    """A machine's monotonic clock that a test moves."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns


def test_a_clock_starts_at_wall_time_and_moves_with_the_monotonic_clock() -> None:
    monotonic = Monotonic(500)
    clock = Clock.starting_at(1_700_000_000_000_000_000, monotonic)
    assert clock.now_ns() == 1_700_000_000_000_000_000
    monotonic.now_ns += 42
    assert clock.now_ns() == 1_700_000_000_000_000_042


def test_the_offset_gives_another_process_the_same_time() -> None:
    monotonic = Monotonic(7)
    leader = Clock.starting_at(1_000_000, monotonic)
    follower = Clock(leader.offset_ns, monotonic)
    monotonic.now_ns = 99
    assert follower.now_ns() == leader.now_ns() == 1_000_092
