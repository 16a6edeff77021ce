"""The command, and the one thing that has to happen before NumPy is imported."""

import os

from pipeline.threads import BLAS_VARIABLES, blas_threads


def main() -> None:
    """Run the command line with as many threads of BLAS as leave each thread of a worker its share of the cores."""
    for name in BLAS_VARIABLES:
        os.environ.setdefault(name, str(blas_threads()))
    from pipeline.cli import main as run

    run()


if __name__ == "__main__":
    main()
