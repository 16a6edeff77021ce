"""Which signals end a command, with which exit status, and how soon."""

from __future__ import annotations

import signal

# Signals that end a command, and its exit status then. SIGUSR1 is a batch system's warning.
STATUS = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 75}
LEAVE_SECONDS = 7  # of ten, from the signal until the process that works is killed
