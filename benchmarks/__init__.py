"""Benchmarks, one module a figure: ``python -m benchmarks.NAME --json``.

Each tells a person what it measures on standard error, and ends standard output with one
JSON object that carries the figures, the machine and the versions.
"""
