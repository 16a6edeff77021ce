"""Runs a study and draws its results."""
