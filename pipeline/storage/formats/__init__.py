"""Formats besides raw and `.npy`; each imports its library only when a file needs it."""
