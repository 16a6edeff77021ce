"""How the command's processes stop: signals, deadlines that need no GIL, and the counters that show progress."""
