"""Kafka bytes to columns, the user's function, and columns back to bytes; dead letters and lineage."""
