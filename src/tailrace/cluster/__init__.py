"""A development cluster: Spark's own standalone master and workers, on loopback only."""
