"""Imported last by the fork server: settings that its workers inherit."""

import gc
import os
import signal
import sys

from pipeline.threads import SWITCH_SECONDS

gc.freeze()  # garbage collection in a worker would touch, and so copy, the pages of the modules
sys.setswitchinterval(SWITCH_SECONDS)
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))
