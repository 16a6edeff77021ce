"""Where tasks run: in this process, in several of this machine, or on an existing Dask cluster."""
