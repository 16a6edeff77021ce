"""Where tasks run: this process, processes of this machine, or an existing Dask cluster."""
