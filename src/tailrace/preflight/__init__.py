"""What would go wrong with a query, found before it starts."""
