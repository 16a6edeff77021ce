"""Imported last by the server that workers are forked from: how a worker differs from it."""

import gc
import os
import signal

gc.freeze()  # modules are garbage in none of them
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))
