"""Kafka as the pipelines meet it: topics and partitions, and a real broker for development."""
