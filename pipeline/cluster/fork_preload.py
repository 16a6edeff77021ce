"""Imported last by the server that workers are forked from: how a worker differs from it."""

import gc
import os
import signal
import sys

from pipeline.threads import SWITCH_SECONDS

gc.freeze()  # modules are garbage in none of them
sys.setswitchinterval(SWITCH_SECONDS)
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))
