"""Prove the supported versions: `python -m tests.matrix.pythons` and `python -m tests.matrix.javas`.

`smoke.py` is not collected by `pytest` alone: the full suite covers the same ground on the default versions.
"""
