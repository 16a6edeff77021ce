"""A Dask client whose calls all have a limit: Dask's own wait for ever for a scheduler or worker that is frozen."""

from __future__ import annotations

import traceback
from contextlib import suppress
from typing import Any

from distributed import Client

from pipeline.errors import LostAnswer

CALL_SECONDS = 120  # the longest call warms up workers: CUDA contexts, kernels that are compiled
CLOSE_SECONDS = 5


class LimitedClient(Client):  # type: ignore[misc]
    """Raises TimeoutError where Dask's client would wait for ever."""

    def sync(self, func: Any, *args: Any, callback_timeout: Any = None, **keywords: Any) -> Any:
        """As `Client.sync`, with a limit in any case."""
        try:
            return super().sync(func, *args, callback_timeout=callback_timeout or CALL_SECONDS, **keywords)
        except UnboundLocalError as error:
            # Of Dask's `sync` itself a coroutine was cancelled: it takes that for an answer, since it is no Exception.
            if traceback.extract_tb(error.__traceback__)[-1].name != "sync":
                raise
            raise LostAnswer("expected an answer of Dask, got a cancelled request; run again") from None

    def close(self, timeout: Any = CLOSE_SECONDS) -> Any:
        """Close this client; one whose scheduler does not answer is dropped."""
        with suppress(OSError, AssertionError):  # TimeoutError is an OSError
            return super().close(timeout)
