"""BLAKE3 of samples: chaining values of aligned subtrees, in any order."""
