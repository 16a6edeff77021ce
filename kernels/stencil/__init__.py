"""Sums over sliding windows, plain and weighted."""
