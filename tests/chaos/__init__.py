"""Harnesses that break things on purpose, at random but repeatably, and look at what is left."""
