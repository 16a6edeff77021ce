"""Arrays combined element by element."""
