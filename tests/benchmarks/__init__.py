"""Measurements, side by side in one process; figures that count are committed as JSON under results/."""

import os

from pipeline.threads import BLAS_VARIABLES, blas_threads

for name in BLAS_VARIABLES:  # as the command does, before NumPy is imported
    os.environ.setdefault(name, str(blas_threads()))
