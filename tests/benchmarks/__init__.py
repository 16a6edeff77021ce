"""Measurements, side by side in one process; figures that count are committed as JSON under results/."""
