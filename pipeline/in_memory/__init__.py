"""Jobs over arrays that are in memory already: NumPy, CuPy and dask arrays, computed where they lie."""
