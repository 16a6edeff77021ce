"""Plants one error at a time inside of a job and sees what becomes of its result."""
