"""A user's project: the files that a new one begins with."""
