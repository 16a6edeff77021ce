"""GPUs of this machine, and transfers to and from them."""
