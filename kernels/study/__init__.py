"""The courses' kernels, naive first; no job imports them."""
