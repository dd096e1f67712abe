"""Prove the supported versions: `python -m tests.matrix.pythons` and `python -m tests.matrix.javas`.

`pytest` alone does not collect the smoke tests: other tests cover the same code on the default versions.
"""
