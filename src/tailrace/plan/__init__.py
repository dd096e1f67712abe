"""A query as plain data: operators, refusals, slots, sources and sink. Needs no Spark."""
