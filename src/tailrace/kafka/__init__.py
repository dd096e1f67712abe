"""Kafka topics, records and access rights, and a real broker for development."""
