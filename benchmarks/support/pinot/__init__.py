"""A Pinot cluster of one computer, and tables on it."""
