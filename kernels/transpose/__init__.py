"""Axes reversed or permuted, every bit kept."""
