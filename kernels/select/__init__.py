"""Which samples a condition keeps: an expression in names and numbers, evaluated as NumPy evaluates it."""
