"""Calibrated samples: a gain, a bias and a transform, each operation rounded correctly."""
