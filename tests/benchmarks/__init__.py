"""Measurements, side by side in one process; figures that count are committed as JSON under results/."""

import os

from pipeline.threads import BLAS_VARIABLES, blas_threads

for name in BLAS_VARIABLES:  # before NumPy is imported, as in the command
    os.environ.setdefault(name, str(blas_threads()))
