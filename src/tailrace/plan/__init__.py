"""A query's plan in plain data: what runs at the same time, and where its rows come from."""
