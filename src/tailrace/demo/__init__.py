"""``tailrace demo``: broker, load, pipeline and measurement at once, and nothing left behind."""
