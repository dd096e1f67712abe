"""From a definition to a running query, and back down in order."""
