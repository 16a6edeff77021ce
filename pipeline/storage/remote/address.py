"""Addresses of remote objects, which show without what gives access to them, and what tells an object from another."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pipeline.errors import UsageError

SCHEMES = ("s3", "gs", "az", "https", "http")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
MEMBER = "::"  # as in `pipeline.storage.sources`
_WEB = r"(?i:(?!(?:s3|gs|az)://)\b[a-z][a-z0-9+.-]*://)"
MOST_ETAG = 100  # characters of one in a message
HIDDEN = "…"  # in the place of a query, which may be a signature


class Url(str):
    """The address of an object; as a string, its name for people, without query, user and password.

    Two addresses are equal if they are those of one object, also if their names are equal.

    Attributes
    ----------
    base
        Bucket, as ``s3://bucket``, or the whole address of a web server's object, or of the folder that it is in. To be
        shown to nobody.
    key
        Of the object in it; may be empty on a web server.
    """

    base: str
    key: str
    seen: Any = None  # of `pipeline.storage.remote.objects.look`

    def __new__(cls, name: str, base: str = "", key: str = "") -> Url:
        """An address of a name, which is shown."""
        url = super().__new__(cls, name)
        url.base, url.key = base, key
        return url

    def __getnewargs__(self) -> tuple[str, ...]:  # type: ignore[override]
        return str(self), self.base, self.key

    def __getstate__(self) -> None:
        """Nothing more: what a process has seen of the object stays there."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and (self.base, self.key) == (other.base, other.key)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.base, self.key))

    @property
    def scheme(self) -> str:
        """One of `SCHEMES`."""
        return self.base.partition(":")[0]

    @property
    def web(self) -> bool:
        """Whether a web server has it, which lists no objects."""
        return self.scheme in ("http", "https")

    def within(self, name: str) -> Url:
        """An object in the folder of this name."""
        key, base = f"{self.key.rstrip('/')}/{name}".lstrip("/"), self.base
        if self.web:
            parts = urlsplit(base)
            base = urlunsplit(parts._replace(path=parts.path.rstrip("/")))
        shown, mark, query = str(self).partition(f"?{HIDDEN}" if self.web else "\0")
        return Url(f"{shown.rstrip('/')}/{name}{mark}{query}", base, key)


class ObjectIdentity(NamedTuple):
    """An object as it was planned; every answer to a request is compared with it.

    Attributes
    ----------
    url
    size
    etag
        With its quotes; None if the server tells none.
    modified
        Seconds since 1970; None if the server tells nothing.
    """

    url: Url
    size: int
    etag: str | None
    modified: float | None

    @property
    def weak(self) -> bool:
        """Whether only its size tells it from another one."""
        return self.etag is None and self.modified is None

    @property
    def condition(self) -> dict[str, Any]:
        """What makes a server refuse to answer with another object; weak ETags would never match."""
        return {"if_match": self.etag} if self.etag is not None and not self.etag.startswith("W/") else {}

    def differs(self, other: ObjectIdentity) -> str | None:
        """What shows that an object is another one than this; None if nothing does."""
        if self.size != other.size:
            return f"{self.size} bytes, got {other.size}"
        if (self.etag or other.etag) is not None:
            shown = f"the ETag {(self.etag or 'none')[:MOST_ETAG]}, got {(other.etag or 'none')[:MOST_ETAG]}"
            return None if self.etag == other.etag else shown
        return None if self.modified == other.modified else "the time of its last change, got another one"


def is_url(item: str) -> bool:
    """Whether an input is an address.

    Raises
    ------
    UsageError
        If it is one of a scheme that is not read.
    """
    if (begin := SCHEME.match(item)) is None:
        return False
    if begin[1].lower() not in SCHEMES:
        raise UsageError(f"{redacted(item)}: expected a path, or a URL of {', '.join(SCHEMES)}, got one of {begin[1]}; "
                         "copy it to a file")  # fmt: skip
    return True


def split_url(item: str) -> tuple[str, str | None]:
    """Address and the member after ``::``, if any; not that of an IPv6 address."""
    start = item.find("/", item.index("://") + 3)
    path, mark, member = item[max(start, 0) :].partition(MEMBER)
    return item[: max(start, 0)] + path, member if mark else None


def address(text: str) -> Url:
    """The address of an object.

    Raises
    ------
    UsageError
        If it names none.
    """
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    if scheme not in ("http", "https"):
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise UsageError(f"{text}: expected {scheme}://BUCKET/KEY, got no {'key' if bucket else 'bucket'}; name an "
                             "object, or a pattern like 'dir/*.bin'")  # fmt: skip
        return Url(f"{scheme}://{rest}", f"{scheme}://{bucket}", key)
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        host = parts.hostname
    except ValueError:
        host = None
    if not host:
        raise UsageError(f"{redacted(text)}: expected {scheme}://HOST/PATH, got no host; check the URL")
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query=HIDDEN if parts.query else "", fragment="")
    return Url(urlunsplit(shown), urlunsplit(parts._replace(fragment="")))


def redacted(text: str) -> str:
    """A text with the addresses in it as they are shown; keys in buckets may have question marks."""
    text = re.sub(rf"({_WEB}[^\s?#'\"]*)\?[^\s'\"]*", rf"\1?{HIDDEN}", text)
    return re.sub(rf"({_WEB})[^\s/@]*@", r"\1", text)
