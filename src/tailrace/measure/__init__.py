"""The benchmark, ``tailrace bench``: one load, one probe, and any engine between them."""
