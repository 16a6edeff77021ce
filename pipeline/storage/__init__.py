"""Sources of samples and outputs."""
