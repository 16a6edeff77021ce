"""Imported last by the fork server: what its workers do differently."""

import gc
import os
import signal
import sys

from pipeline.threads import SWITCH_SECONDS

gc.freeze()  # no worker collects the modules, which would copy their pages
sys.setswitchinterval(SWITCH_SECONDS)
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}))
