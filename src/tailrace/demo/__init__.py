"""``tailrace demo``: broker, load, pipeline and measurement in one command."""
