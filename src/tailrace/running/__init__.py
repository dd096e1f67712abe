"""Start a prepared query, confirm that it runs, watch it, stop it."""
