"""Checks of a machine: whether what jobs need is there and works, and what to do if it is not."""
