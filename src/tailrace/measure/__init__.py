"""``tailrace bench``: one load, one probe, any engine between them."""
