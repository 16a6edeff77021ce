"""Joins an existing cluster, with time limits for its scheduler and workers to answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import ip_address
from socket import getaddrinfo
from time import monotonic, sleep
from typing import Any

from pipeline.cluster.client import CALL_SECONDS, LimitedClient
from pipeline.cluster.workers import ANSWER_SECONDS, Workers, known_workers
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import find_devices
from pipeline.packages import code_version

LOOK_SECONDS = 0.1  # between two looks for a first worker
MOST_CHARACTERS = 2**24  # of the file that a scheduler wrote


@contextmanager
def existing_workers(
    scheduler: str | None, scheduler_file: str | None, device: str, files: Mapping[str, str | None]
) -> Iterator[Workers]:
    """Workers of an existing cluster, given by the scheduler's address or the file that it wrote.

    `files` are ``tls_ca_file``, ``tls_cert`` and ``tls_key``.

    Raises
    ------
    UsageError
        If there is no such file, no address in it, no GPU although one was requested, or if others could read or
        change what is sent to the scheduler.
    PipelineError
        If the scheduler or its workers do not answer in time, or cannot run baru.
    """
    with _connect(scheduler, scheduler_file, ANSWER_SECONDS, files) as client:
        yield _inspect(client, str(scheduler or scheduler_file), device)


@contextmanager
def workers_of_client(client: Any, device: str) -> Iterator[Workers]:
    """Workers of the cluster that a caller's own `distributed.Client` is connected to.

    The run connects to the same scheduler, since calls of the caller's client may wait for ever. Errors as of
    `existing_workers`.
    """
    address = client.scheduler.address
    try:
        own = LimitedClient(address, timeout=ANSWER_SECONDS, set_as_default=False, security=client.security)
    except Exception as error:
        reason = str(error).partition("\n")[0] or "none"
        raise PipelineError(f"client of {address}: expected an answer from its scheduler within {ANSWER_SECONDS} s, "
                            f"got {reason}; is it running?") from None  # fmt: skip
    with own:
        yield _inspect(own, address, device)


@contextmanager
def _connect(
    scheduler: str | None, scheduler_file: str | None, seconds: float, files: Mapping[str, str | None]
) -> Iterator[Any]:
    name = str(scheduler or scheduler_file)
    address = scheduler or _address_in(str(scheduler_file))
    security = _security(files)
    _refuse_strangers(name, address, security)
    try:
        with ThreadPoolExecutor(1) as thread:  # the calling thread may be running an event loop
            thread.submit(asyncio.run, _shake_hands(address, seconds, security)).result(2 * seconds)
        client = LimitedClient(address, timeout=seconds, set_as_default=False, security=security)
    except Exception as error:  # a wrong address may raise almost anything
        reason = str(error).partition("\n")[0] or "none"
        raise PipelineError(f"scheduler {name}: expected an answer within {seconds} s, got {reason}; "
                            "is it running, and is the address right?") from None  # fmt: skip
    with client:
        yield client


def _security(files: Mapping[str, str | None]) -> Any:
    """Certificates from the command line, or else from Dask's configuration."""
    from distributed import Security

    given = {f"--{name.replace('_', '-')}": path for name, path in files.items() if path is not None}
    if not given:
        return Security()
    if len(given) < len(files):
        raise UsageError(f"expected --tls-ca-file, --tls-cert and --tls-key together, got {', '.join(given)} alone")
    for flag, path in given.items():
        if not os.path.isfile(path):
            raise UsageError(f"{flag} {path}: expected a file in PEM format, found none")
    names = {"tls_ca_file": files["tls_ca_file"], "tls_client_cert": files["tls_cert"],
             "tls_client_key": files["tls_key"]}  # fmt: skip
    security = Security(**names, require_encryption=True)
    try:
        security.get_connection_args("client")
    except OSError as error:  # an SSLError is one
        raise UsageError(f"{', '.join(given)}: expected certificates and their key in PEM format, got "
                         f"{error.strerror or error}") from None  # fmt: skip
    return security


def _refuse_strangers(name: str, address: str, security: Any) -> None:
    """Refuse a scheduler on another machine without certificates: who can reach it can run code as this user."""
    protocol, _, location = address.rpartition("://")
    certified = protocol == "tls" and security.get_connection_args("client").get("ssl_context") is not None
    host = location.rpartition(":")[0] if ":" in location else location
    try:
        if certified or protocol == "inproc" or _is_here(host.strip("[]")):
            return
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PipelineError(f"scheduler {name}: expected a host that can be found, got {host!r} ({reason}); "
                            "check the address") from None  # fmt: skip
    raise UsageError(f"scheduler {name}: expected a tls:// address with --tls-ca-file, --tls-cert and --tls-key (or "
                     "distributed.comm.tls in Dask's configuration), or an address of this machine like 127.0.0.1, got "
                     "another one; without certificates everybody who can reach it can run code as you")  # fmt: skip


def _is_here(host: str) -> bool:
    """Whether a host, by name or number, is this machine's loopback."""
    numbers = {str(result[4][0]) for result in getaddrinfo(host, None)} if host else set()
    return all(ip_address(number.partition("%")[0]).is_loopback for number in numbers)


def _address_in(path: str) -> str:
    if not os.path.isfile(path):
        raise UsageError(f"--scheduler-file {path}: expected the file that a scheduler wrote, found none; "
                         "start `dask scheduler --scheduler-file FILE` first")  # fmt: skip
    try:
        with open(path, encoding="utf-8") as file:
            return str(json.loads(file.read(MOST_CHARACTERS))["address"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(f"--scheduler-file {path}: expected JSON with an address in it, as a scheduler writes it; "
                         "is it the right file?") from None  # fmt: skip


async def _shake_hands(address: str, seconds: float, security: Any) -> None:
    """Connect once, with a time limit: Dask's client has none for the first reply after a connection is accepted."""
    from distributed.comm import connect

    async with asyncio.timeout(seconds):
        comm = await connect(address, timeout=seconds, **security.get_connection_args("client"))
        await comm.close()


def _inspect(client: Any, name: str, device: str) -> Workers:
    """Ask the workers for their GPUs, and select those that will compute."""
    until = monotonic() + ANSWER_SECONDS
    while not known_workers(client, f"scheduler {name}"):
        if monotonic() > until:
            raise PipelineError(f"scheduler {name}: expected a worker within {ANSWER_SECONDS} s, got none; start "
                                "`dask worker` or `dask cuda worker` with that address")  # fmt: skip
        sleep(LOOK_SECONDS)
    try:
        found = client.run(_version_and_gpus)
    except TimeoutError:
        raise PipelineError(f"scheduler {name}: expected an answer from every worker within {CALL_SECONDS} s; one "
                            "hangs: see their logs") from None  # fmt: skip
    except Exception as error:  # Dask raises a worker's own error, or one with its text
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"scheduler {name}: expected workers that can run baru, got {reason}; "
                            "install the same version there") from error  # fmt: skip
    if other := [address for address, (version, _) in found.items() if version != code_version()]:
        raise PipelineError(f"scheduler {name}: expected the sources of baru that run here ({code_version()}) on every "
                            f"worker, got {found[other[0]][0]} on {other[0]}; install the same version there, and "
                            "restart it")  # fmt: skip
    usable = {address: gpus for address, (_, gpus) in found.items()}
    with_gpu = tuple(address for address, gpus in usable.items() if gpus)
    if device == "gpu" and not with_gpu:
        raise UsageError(f"--device gpu: expected a worker with a GPU at {name}, got {len(usable)} without; "
                         "run with --device cpu for the same result")  # fmt: skip
    info = known_workers(client, f"scheduler {name}")
    if not info.keys() & usable.keys():
        raise PipelineError(f"scheduler {name}: expected its workers to stay, got none a moment after they answered; "
                            "see their logs for what ended them")  # fmt: skip
    threads = sum(worker["nthreads"] for worker in info.values())
    number = len(with_gpu) if with_gpu and device != "cpu" else len(usable)
    where = f"{number} worker{'s'[: number > 1]} at {name}"
    dashboard = client.dashboard_link or None
    if not with_gpu or device == "cpu":
        return Workers(client, "cpu", threads, threads, None, {}, where, dashboard)
    declared = {address for address, worker in info.items() if "GPU" in worker.get("resources", {})}
    resources = {"GPU": 1.0} if declared >= set(with_gpu) else {}
    confined = declared != set(with_gpu) and len(with_gpu) < len(usable)
    return Workers(client, "gpu", len(with_gpu), threads, with_gpu if confined else None, resources, where, dashboard)


def _version_and_gpus() -> tuple[str, int]:
    """The version of the sources of the worker running this, and the number of GPUs that it can use."""
    return code_version(), find_devices().usable
