"""The dead letters of a pipeline: list them, show them, replay them."""
