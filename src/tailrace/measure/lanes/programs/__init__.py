"""What the engines run: programs in Scala and Python, and the lock files of what they need."""
