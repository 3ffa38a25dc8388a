"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A deadline per example measures the machine, not the code, and fails on a busy one.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
