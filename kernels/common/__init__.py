"""What several families share: compiling, the device, memory, checks, dtypes."""
