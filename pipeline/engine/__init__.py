"""One run loop: plan, submit, compute, check, combine."""
