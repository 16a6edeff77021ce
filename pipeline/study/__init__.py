"""Runs a study, and draws what it found."""
