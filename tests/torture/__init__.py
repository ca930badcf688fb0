"""Tries to break the product: kills it, takes its disk away, compares what is left with an undisturbed run.

`python -m tests.torture` does it at length and writes docs/reliability.md; tests/test_torture.py a little.
"""
