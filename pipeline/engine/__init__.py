"""One run loop: plan, submit, compute, check, combine.

Begin with `run_loop`. `aggregate` gives it chunks of samples, `array` regions of an output; the modules whose names
begin like these two belong to them.
"""
