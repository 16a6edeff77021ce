"""The command, and the one thing that has to happen before NumPy is imported."""

from pipeline.threads import share_cores


def main() -> None:
    """Run the command line with as many threads of BLAS as leave each thread of a worker its share of the cores."""
    share_cores()
    from pipeline.cli import main as run

    run()


if __name__ == "__main__":
    main()
