"""Places for errors on a GPU."""
