"""What is shown of an address, and what is asked for."""

from __future__ import annotations

import json
import pickle

import pytest

from pipeline.errors import UsageError
from pipeline.storage.remote.address import ObjectIdentity, Url, address, is_url, redacted, split_url


@pytest.mark.parametrize(
    ("text", "shown", "base", "key"),
    [
        ("s3://b/a/c?d=1#e f.bin", "s3://b/a/c?d=1#e f.bin", "s3://b", "a/c?d=1#e f.bin"),
        ("S3://b/%20", "s3://b/%20", "s3://b", "%20"),
        ("az://box/a", "az://box/a", "az://box", "a"),
        ("https://h:1/a%20b?sig=x#part", "https://h:1/a%20b?…", "https://h:1/a%20b?sig=x", ""),
        ("https://me:word@h/a", "https://h/a", "https://me:word@h/a", ""),
        ("HTTP://[::1]:80/a", "http://[::1]:80/a", "http://[::1]:80/a", ""),
    ],
)
def test_address(text: str, shown: str, base: str, key: str) -> None:
    url = address(text)
    assert (str(url), url.base, url.key) == (shown, base, key)
    assert type(str(url)) is str and json.loads(json.dumps(url)) == shown
    again = pickle.loads(pickle.dumps(ObjectIdentity(url, 5, '"a"', 1.5)))
    assert again == ObjectIdentity(url, 5, '"a"', 1.5) and (again.url.base, again.url.key) == (base, key)
    assert "word" not in repr(again) and "sig" not in repr(again)


def test_objects_with_one_name() -> None:
    """Only their queries differ."""
    first, second = address("https://h/a?id=1"), address("https://h/a?id=2")
    assert first != second and str(first) == str(second) and len({first, second, address("https://h/a?id=1")}) == 2
    assert first != "https://h/a?…"


def test_within() -> None:
    def all_of(url: Url) -> tuple[str, str, str]:
        return str(url), url.base, url.key

    inside = address("s3://b/a.zarr/").within("x").within("c/0")
    assert all_of(inside) == ("s3://b/a.zarr/x/c/0", "s3://b", "a.zarr/x/c/0")
    inside = address("https://h/a.zarr/?t=1").within("x").within("c/0")
    assert all_of(inside) == ("https://h/a.zarr/x/c/0?…", "https://h/a.zarr?t=1", "x/c/0")


@pytest.mark.parametrize(
    ("item", "path", "member"),
    [
        ("s3://b/a.h5::/g/d", "s3://b/a.h5", "/g/d"), ("s3://b/a", "s3://b/a", None), ("s3://b", "s3://b", None),
        ("http://[::1]:80/a.npz::b", "http://[::1]:80/a.npz", "b"), ("http://[::1]/a", "http://[::1]/a", None),
        ("https://h/a.npz?t=1::b", "https://h/a.npz?t=1", "b"), ("https://h/a::", "https://h/a", ""),
    ],
)  # fmt: skip
def test_member(item: str, path: str, member: str | None) -> None:
    assert split_url(item) == (path, member)


def test_what_is_a_url() -> None:
    assert [is_url(item) for item in ("a", "/a://b", "./s3://b/c", "gs://b/c", "C:\\a", "-", "a::b")] == (
        [False, False, False, True, False, False, False]
    )
    with pytest.raises(UsageError, match=r"^ftp://h/a\?…: expected a path, or a URL of s3, .*, got one of ftp; copy"):
        is_url("ftp://me:word@h/a?x")


def test_redacted() -> None:
    line = "histogram 'https://me:word@h/a?sig=1' s3://b/a?b http://h/c?d=e /a?b"
    assert redacted(line) == "histogram 'https://h/a?…' s3://b/a?b http://h/c?… /a?b"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ((5, '"a"', 1.0), None), ((5, '"a"', 2.0), None), ((6, '"a"', 1.0), "5 bytes, got 6"),
        ((5, '"b"', 1.0), 'the ETag "a", got "b"'), ((5, None, 1.0), 'the ETag "a", got none'),
    ],
)  # fmt: skip
def test_differences(now: tuple[int, str | None, float], text: str | None) -> None:
    url = address("https://h/a")
    planned = ObjectIdentity(url, 5, '"a"', 1.0)
    assert planned.differs(ObjectIdentity(url, *now)) == text
    assert planned.condition == {"if_match": '"a"'} and ObjectIdentity(url, 5, 'W/"a"', 1.0).condition == {}
    without = ObjectIdentity(url, 5, None, 1.0)
    assert without.differs(ObjectIdentity(url, 5, None, 1.0)) is None and not without.weak
    assert without.differs(ObjectIdentity(url, 5, None, 2.0)) == "the time of its last change, got another one"
    assert ObjectIdentity(url, 5, None, None).weak


def test_long_etag_is_cut_in_a_message() -> None:
    url = Url("https://h/a", "https://h/a", "")
    message = ObjectIdentity(url, 5, '"a"', None).differs(ObjectIdentity(url, 5, "b" * 9000, None))
    assert message is not None and message.endswith("b" * 100) and len(message) < 200
