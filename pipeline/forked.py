"""Imported last by the server that workers are forked from: its modules are garbage in none of them."""

import gc

gc.freeze()
