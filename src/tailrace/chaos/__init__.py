"""``tailrace chaos``: a pipeline under load and under injected faults, and what it lost and repeated."""
