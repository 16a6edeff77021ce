"""What one device does to one array: CUDA sources, the launch wrapper of each, its plain CPU reference.

No Dask, no files, no printing here.
"""
