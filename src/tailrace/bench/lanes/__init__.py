"""The lanes: one file for each way to get a record from one topic to another."""
