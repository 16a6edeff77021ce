"""Counts of samples in bins."""
