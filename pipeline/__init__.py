"""Where and when: files, chunks, clusters, the run loop, reports.

pipeline decides where, workflows decide what, kernels do it; imports point that way only.
"""

__version__ = "0.1.0"
