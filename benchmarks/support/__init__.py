"""What several benchmarks share; not a benchmark itself."""
