"""Exact sums, extremes and their places."""
