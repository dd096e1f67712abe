"""Kafka topics, records and permissions, and a real broker for development."""
