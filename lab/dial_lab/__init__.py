"""Emulated machines with hidden neighbours on one Linux computer, and what runs on them."""
