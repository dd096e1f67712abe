"""Other engines, each set up on demand in a folder of its own below the user's cache."""
