"""Open-loop load and probe, each in its own process, so that nothing else can delay what they time."""
