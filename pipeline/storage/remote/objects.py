"""Requests to object stores and web servers: ranges, first bytes, lists; errors as one line.

obstore repeats requests that fail for a passing reason, also in the middle of an answer, and compares the range that a
server says it sends with the one that was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from ipaddress import ip_address
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.protocol import HEAD_BYTES
from pipeline.storage.remote.address import ObjectIdentity, Url, redacted
from pipeline.storage.remote.waiting import interruptible, within

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 20.0  # without a byte
REQUEST_SECONDS = 300.0  # of one range, at most
RETRIES = 6
PAUSE_SECONDS = 0.25  # the first one; they grow by chance, by up to three times, to some ten seconds in all
RETRY_SECONDS = 60.0  # after which nothing is repeated any more
MOST_LISTED = 2**22
LISTING_SECONDS = 600.0  # of a list; a server can go on saying that there is more
MOST_REASON = 120
STORES = 64  # kept open

ALLOW_HTTP = "BARU_ALLOW_HTTP"  # environment variable: also plain http to other hosts
SETTINGS = ("AWS_", "AZURE_", "GOOGLE_", "BARU_", "SSL_CERT_")  # environment variables that a store takes up
TRUE = ("1", "true", "on", "yes")
ENDPOINTS = {"s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "az": ("AZURE_STORAGE_ENDPOINT",)}
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or AWS_SKIP_SIGNATURE=true if it is public",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true if it is public",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true if it is public",
}
OF_MACHINES = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")  # where clouds' machines get theirs
INCOMPLETE = ("Missing AccessKeyId", "Missing SecretAccessKey", "Account must be specified", "Invalid Access Key")


class NoObjectError(UsageError):
    """There is no object of this name."""


class Look(NamedTuple):
    """An object as it is now, and its first bytes."""

    identity: ObjectIdentity
    head: bytes


def look(url: Url) -> Look:
    """What an object is; asked for once for each instance of its address.

    Raises
    ------
    UsageError
        If it is missing, empty, encoded, or the server answers no range requests; PipelineError if it cannot be read.
    """
    seen: Look | None = url.seen
    if seen is None:
        with told(url):
            result, data = interruptible(_get, url, {"range": (0, HEAD_BYTES)})
        identity, head = _identity(url, result.meta), bytes(data)
        encoding = dict(result.attributes).get("Content-Encoding", "identity")
        if encoding not in ("identity", "aws-chunked"):  # the latter is what some writers leave behind
            raise UsageError(f"{url}: expected samples as they are, got content in {encoding[:MOST_REASON]}; "
                             f"{_pipe(url, ' --compressed')}")  # fmt: skip
        if len(head) != min(identity.size, HEAD_BYTES):
            raise _too_short(url, 0, min(identity.size, HEAD_BYTES), len(head))
        if not identity.size:
            raise empty(url)
        seen = Look(identity, head)
        url.seen = seen
    return seen


def read(identity: ObjectIdentity, start: int, nbytes: int) -> memoryview:
    """A range of an object, if it is still the planned one.

    Raises
    ------
    PipelineError
        If it is not, or cannot be read.
    """
    url = identity.url
    with told(url, start):
        result, data = interruptible(_get, url, {"range": (start, start + nbytes), **identity.condition})
    if (difference := identity.differs(_identity(url, result.meta))) is not None:
        raise PipelineError(f"{url}: was replaced while it was read: expected {difference}; run again when nothing "
                            "writes to it")  # fmt: skip
    if len(data) != nbytes:
        raise _too_short(url, start, nbytes, len(data))
    return data


def listed(url: Url, prefix: str) -> Iterator[ObjectIdentity]:
    """Objects of a bucket in a folder and in all folders below.

    Raises
    ------
    PipelineError
        If they cannot be listed, or are too many.
    """
    number, until = 0, monotonic() + LISTING_SECONDS
    with told(url), _ending(url):
        pages = iter(_obstore(url).list(_open(url), prefix or None))
        while (page := within(until - monotonic(), next, pages, None)) is not None:
            for meta in page:
                number += 1
                if number > MOST_LISTED:
                    raise UsageError(f"{url}: expected at most {MOST_LISTED} objects, got more; narrow the pattern")
                yield _identity(Url(f"{url.base}/{meta['path']}", url.base, meta["path"]), meta)


def folder(url: Url, prefix: str) -> tuple[list[str], list[str]]:
    """Keys of the objects in a folder of a bucket, and of the folders in it.

    Raises
    ------
    PipelineError
        If they cannot be listed.
    """
    with told(url), _ending(url):
        both = within(LISTING_SECONDS, _obstore(url).list_with_delimiter, _open(url), prefix or None)
    return [meta["path"] for meta in both["objects"]], list(both["common_prefixes"])


@contextmanager
def _ending(url: Url) -> Iterator[None]:
    """An error that names the list whose end was awaited."""
    try:
        yield
    except TimeoutError:
        raise PipelineError(f"{url}: expected the list of its objects, got no end of it within {LISTING_SECONDS:g} s; "
                            "narrow the pattern, and ask who runs the server if it goes on") from None  # fmt: skip


def empty(url: str) -> UsageError:
    """The error of an object without a byte."""
    return UsageError(f"{url}: expected samples, got an empty object, as a failed upload leaves it; leave it out")


def _identity(url: Url, meta: Any) -> ObjectIdentity:
    etag, modified = meta["e_tag"], meta["last_modified"].timestamp()
    if etag and not etag.endswith('"'):  # in lists of some stores
        etag = f'"{etag}"'
    return ObjectIdentity(url, meta["size"], etag or None, modified or None)


def _get(url: Url, options: dict[str, Any]) -> tuple[Any, memoryview]:
    result = _obstore(url).get(_open(url), url.key, options=options)
    return result, memoryview(result.bytes())


def _obstore(url: Url) -> Any:
    try:
        import obstore
    except ImportError:
        raise UsageError(f"{url}: expected the package obstore, which reads object stores and web servers, got none; "
                         "pip install 'baru[remote]'") from None  # fmt: skip
    return obstore


def _open(url: Url) -> Any:
    return _store(url.base, *(item for item in os.environ.items() if item[0].startswith(SETTINGS)))


@lru_cache(STORES)
def _store(base: str, *settings: tuple[str, str]) -> Any:
    """A store, with its connections, for these settings in the environment."""
    from obstore import store

    scheme, _, rest = base.partition("://")
    limits: Any = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS), "read_timeout": timedelta(seconds=SILENT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
    }  # fmt: skip
    pauses: Any = {"init_backoff": timedelta(seconds=PAUSE_SECONDS), "max_backoff": timedelta(seconds=10), "base": 3}
    retry: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS), "backoff": pauses}
    if scheme in ("http", "https"):
        plain = {"allow_http": True} if scheme == "http" and _may_be_plain(base) else {}
        return store.HTTPStore(base, client_options={**limits, **plain}, retry_config=retry)
    endpoint = next((value for name in ENDPOINTS.get(scheme, ()) if (value := os.environ.get(name))), None)
    # Given as client options they would replace those of the environment.
    options: dict[str, Any] = {name: f"{value.total_seconds()}s" for name, value in limits.items()}
    if endpoint is not None and _may_be_plain(endpoint):
        options["allow_http"] = "true"
    make = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}[scheme]
    return make(rest, config=options, retry_config=retry)


def _may_be_plain(base: str) -> bool:
    """Whether plain http is allowed: to this machine, or if the user says so."""
    host = urlsplit(base).hostname or ""
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    return loopback or os.environ.get(ALLOW_HTTP, "").lower() in TRUE


@contextmanager
def told(url: Url, start: int | None = None) -> Iterator[None]:
    """Turn errors of requests into one line, without what gives access.

    Parameters
    ----------
    url
    start
        First byte that was asked for, while a planned object is read; None before.
    """
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:  # of obstore, or built in: FileNotFoundError, ValueError, OSError
        raise _told(url, start, error) from None


def _told(url: Url, start: int | None, error: Exception) -> PipelineError:
    text, kind = str(error), type(error).__name__
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>(\w{1,60})</Code>", text)
    got = " ".join([*([status[1]] if status else []), *([code[1]] if code else [])])
    begun = "" if start is None else f" at byte {start}"
    if kind == "FileNotFoundError" or got.startswith("404"):
        if start is not None:
            return PipelineError(f"{url}: was removed while it was read; run again when nothing writes to it")
        return NoObjectError(f"{url}: expected an object, got none there ({got}); check its name")
    if kind == "PreconditionError" and start is not None:
        return PipelineError(f"{url}: was replaced while it was read: expected the ETag that was planned, got another "
                             "one; run again when nothing writes to it")  # fmt: skip
    if kind == "NotSupportedError" or "NotSupported" in text[:60] or "Range request not supported" in text:
        return UsageError(f"{url}: expected a server that answers range requests, got one that does not; {_pipe(url)}")
    if status and status[1] == "416":
        return empty(url) if start is None else PipelineError(
            f"{url}: was replaced while it was read: expected more than {start} bytes, got fewer; run again when "
            "nothing writes to it")  # fmt: skip
    if any(name in text for name in (*OF_MACHINES, *INCOMPLETE)):
        return PipelineError(f"{url}: expected credentials, got none, or a part; set {CREDENTIALS[url.scheme]}")
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or (code and "Token" in code[1]):
        allowed = f"set {CREDENTIALS[url.scheme]}" if not url.web else "ask for a new link, if this one has expired"
        return PipelineError(f"{url}: expected to be allowed to read it, got {got or 'a refusal'}{begun}; check the "
                             f"permissions and the time of this machine, or {allowed}")  # fmt: skip
    if "BadScheme" in text:
        return UsageError(f"{url}: expected https, got http, or a redirect to it, where others can read along and "
                          f"change the samples; use https, or set {ALLOW_HTTP}=true")  # fmt: skip
    return PipelineError(f"{url}: expected to read it{begun}, got {_reason(text, got)}")


def _reason(text: str, got: str) -> str:
    """Why a request failed, if not because of the object, and what to do."""
    # Names in the description of an error in Rust, which is stable enough; what is not known is quoted.
    if "dns error" in text:
        return "no address for the server's name; check the name and the network"
    if "tcp connect error" in text or "kind: Connect" in text:
        certificate = "ertificate" in text
        return ("a certificate that is not trusted; check SSL_CERT_FILE" if certificate else
                "no connection; check the server's name and port, and the network")  # fmt: skip
    if "TimedOut" in text or "kind: Timeout" in text:
        return (f"nothing for {SILENT_SECONDS:g} s, or no whole answer in {REQUEST_SECONDS:g} s, repeatedly; is the "
                "server overloaded? Run again later")  # fmt: skip
    if any(name in text for name in ("kind: Interrupted", "IncompleteBody", "IncompleteMessage", "ConnectionReset")):
        return "an answer that ended early, repeatedly; run again, and ask who runs the server if it goes on"
    if any(name in text for name in ("UnexpectedRange", "NoContentRange", "Wanted range")):
        return "another range than the requested one; the server, or a proxy, is faulty: copy the object to a file"
    if got:
        return f"{got}, repeatedly; run again later" if got.startswith(("5", "429")) else f"{got}; check its address"
    reason = text.partition("\n")[0].rpartition(" - ")[2]
    return f"{redacted(reason)[:MOST_REASON]!r}; check its address and the network"


def _pipe(url: Url, flags: str = "") -> str:
    return f"read it once and in order: curl -fsS{flags} URL | python -m pipeline histogram -"


def _too_short(url: Url, start: int, nbytes: int, got: int) -> PipelineError:
    return PipelineError(f"{url}: expected {nbytes} bytes from byte {start} on, got {got}; the server, or a proxy, is "
                         "faulty: copy the object to a file")  # fmt: skip
