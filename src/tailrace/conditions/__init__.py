"""Spark's conditions and exceptions as errors in the user's words."""
