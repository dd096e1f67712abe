"""From a pipeline or a query to one that is planned and checked, ready to start."""
