"""A bucket behind a web server: its list of objects, in the words of S3."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cases.web_server import WebServer

OBJECTS = {"p/a.bin": bytes(range(100)), "p/b.bin": bytes(100)}
OBJECT = """<Contents><Key>{key}</Key><LastModified>2026-11-23T09:00:00.000Z</LastModified>\
<ETag>&quot;{key}&quot;</ETag><Size>100</Size><StorageClass>STANDARD</StorageClass></Contents>"""
PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>samples</Name><Prefix>p/</Prefix>\
<KeyCount>{number}</KeyCount><MaxKeys>1000</MaxKeys><Delimiter>/</Delimiter><IsTruncated>{truncated}</IsTruncated>\
{more}{contents}</ListBucketResult>"""


def listing(keys: Sequence[str], token: str = "") -> bytes:
    """A page of the list; with a token it says that another one follows."""
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    contents = "".join(OBJECT.format(key=key) for key in keys)
    return PAGE.format(number=len(keys), truncated=str(bool(token)).lower(), more=more, contents=contents).encode()


def store(server: WebServer) -> dict[str, str]:
    """Let a server have the bucket; returns the environment variables that say where it is."""
    server.files |= {f"/samples/{key}": content for key, content in OBJECTS.items()}
    server.files["/samples"] = listing(tuple(OBJECTS))
    return {"AWS_ENDPOINT_URL": server.url(""), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1"}  # fmt: skip
