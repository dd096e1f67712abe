"""The studies: one file for each question that a benchmark answers."""
