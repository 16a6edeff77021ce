"""The list of commands for `--help`: importing all commands would take three quarters of its time."""

JOBS, OTHERS, BATCHES, RESULTS = "Jobs", "Other commands", "Batches", "Results"  # its sections

# In the order of each section. A job's text repeats its declaration.
LISTED = {
    "histogram": (JOBS, "Count samples into bins."),
    "reduce": (JOBS, "Compute exact sums, means, variances, skewness, kurtosis, norms, quantiles, extremes and their "
                     "positions."),
    "quantile": (JOBS, "Compute exact quantiles of data of any size."),
    "digest": (JOBS, "Compute the BLAKE3 of the samples, the same for every format, chunk size and number of devices."),
    "matmul": (JOBS, "Multiply matrices, or stacks of them."),
    "transpose": (JOBS, "Transpose an array: the order of all axes reversed."),
    "stencil": (JOBS, "Add up the elements within a radius of each."),
    "map": (JOBS, "Combine arrays element by element."),
    "generate": (OTHERS, "Write a file of samples to try things on."),
    "run": (BATCHES, "Run the jobs of a file, one after another."),
    "slurm": (BATCHES, "Print a batch script for sbatch that runs a job."),
    "show": (RESULTS, "Show a saved result as the run printed it."),
    "merge": (RESULTS, "Add saved results up, exactly."),
    "diff": (RESULTS, "Say whether and where two saved results differ."),
    "verify": (RESULTS, "Check a saved result against its data, on the CPU."),
    "demo": (OTHERS, "Make data, count it, plant an error, and show that it is caught."),
    "doctor": (OTHERS, "Check this machine, and say what to do if something is missing."),
    "plan": (OTHERS, "Say what a run will need, and how long it will take, before it starts."),
    "compare": (OTHERS, "Say whether, where and by how much two arrays differ."),
    "config": (OTHERS, "List the keys of the configuration, and what they are set to."),
    "devices": (OTHERS, "List the GPUs that jobs will use, and what they are."),
    "info": (OTHERS, "Say what files are: format, arrays, dtype, shape, chunks, compression."),
    "runs": (OTHERS, "List or remove what unfinished runs have left."),
    "study": (OTHERS, "Check and time the variants of a job's kernels on a GPU."),
    "inspect": (OTHERS, "Count registers, memory and instructions of kernels."),
}  # fmt: skip
