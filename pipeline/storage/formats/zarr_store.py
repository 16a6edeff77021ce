"""Where a Zarr store keeps its files: in a local folder, in a bucket, or on a web server, which lists nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import whole
from pipeline.storage.formats.zarr_metadata import MOST_JSON, json_of
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import stored_bytes
from pipeline.storage.remote.address import ObjectIdentity, Url
from pipeline.storage.remote.ahead import in_order
from pipeline.storage.remote.objects import NoObjectError, folder, listed, look

METADATA = ("zarr.json", ".zarray")
GROUPS = (".zgroup",)
CONSOLIDATED = ".zmetadata"

Named = Iterator[tuple[str, dict[str, Any]]]


class Store(Protocol):
    """What a Zarr store is read through."""

    def arrays(self, member: str | None) -> Named:
        """Names and metadata of its arrays; where nothing is listed, of the one that is asked for."""

    def metadata(self, member: str) -> Piece:
        """The file of an array's metadata."""

    def files(self, member: str, keys: Iterable[str]) -> Iterator[Piece | str]:
        """Files of an array's chunks or shards, or the names of those that are missing."""


@dataclass(frozen=True)
class LocalStore:
    """A store in a folder."""

    path: str

    def arrays(self, member: str | None) -> Named:
        """All of them."""
        for place, inside, files in os.walk(self.path):
            inside.sort()
            if kind := next((name for name in METADATA if name in files), None):
                metadata = _json(os.path.join(place, kind))
                if not _is_group(kind, metadata):
                    inside.clear()  # chunks
                    yield os.path.relpath(place, self.path), metadata

    def metadata(self, member: str) -> Piece:
        """As of `Store`."""
        paths = [os.path.join(self._folder(member), kind) for kind in METADATA]
        return whole(next(path for path in paths if os.path.exists(path)))

    def files(self, member: str, keys: Iterable[str]) -> Iterator[Piece | str]:
        """As of `Store`."""
        for key in keys:
            path = os.path.join(self._folder(member), key)
            try:
                yield whole(path)
            except UsageError:
                if os.path.lexists(path):  # not to be left out: one that is missing has the fill value
                    what = "an empty file" if os.path.isfile(path) else "a directory or device"
                    raise UsageError(f"{path}: expected a chunk, got {what}; is the store complete?") from None
                yield path

    def _folder(self, member: str) -> str:
        return os.path.normpath(os.path.join(self.path, member))


@dataclass(frozen=True)
class BucketStore:
    """A store in a bucket."""

    url: Url

    def arrays(self, member: str | None) -> Named:
        """All of them, folder by folder."""
        start = self.url.key.rstrip("/")
        folders = [start]
        while folders:
            objects, inside = folder(self.url, place := folders.pop())
            kinds = {key.rpartition("/")[2]: key for key in objects}
            if kind := next((name for name in METADATA if name in kinds), None):
                metadata = _json(Url(f"{self.url.base}/{kinds[kind]}", self.url.base, kinds[kind]))
                if not _is_group(kind, metadata):
                    yield place[len(start) + 1 :] or ".", metadata
                    continue
            folders += sorted(inside, reverse=True)

    def metadata(self, member: str) -> Piece:
        """As of `Store`."""
        return _first(_within(self.url, member))

    def files(self, member: str, keys: Iterable[str]) -> Iterator[Piece | str]:
        """As of `Store`: from a list, with one request for a thousand."""
        place = _within(self.url, member)
        there = {identity.url.key: identity for identity in listed(place, place.key.rstrip("/"))}
        for key in keys:
            url = place.within(key)
            yield str(url) if (identity := there.get(url.key)) is None else _piece(identity)


@dataclass(frozen=True)
class WebStore:
    """A store on a web server."""

    url: Url

    def arrays(self, member: str | None) -> Named:
        """Those in consolidated metadata, or the one that is asked for, or the only one.

        Raises
        ------
        UsageError
            If none is known.
        """
        if member is None:
            kind, metadata = self._metadata(self.url)
            if not _is_group(kind, metadata):
                yield ".", metadata
            elif arrays := list(_consolidated(metadata)):
                yield from arrays
            else:
                raise UsageError(f"{self.url}: expected an array or consolidated metadata, since a web server lists "
                                 "nothing, got a group without; name an array like 'URL::GROUP/ARRAY'")  # fmt: skip
        else:
            kind, metadata = self._metadata(_within(self.url, member))
            if not _is_group(kind, metadata):
                yield member.strip("/"), metadata

    def _metadata(self, place: Url) -> tuple[str, dict[str, Any]]:
        for kind in (*METADATA, CONSOLIDATED, *GROUPS):
            try:
                return kind, _json(place.within(kind))
            except UsageError:
                continue
        raise UsageError(f"{place}: expected {', '.join(METADATA)}, got none there; check the name")

    def metadata(self, member: str) -> Piece:
        """As of `Store`."""
        return _first(_within(self.url, member))

    def files(self, member: str, keys: Iterable[str]) -> Iterator[Piece | str]:
        """As of `Store`: by a request for each."""
        place = _within(self.url, member)

        def find(key: str) -> Piece | str:
            url = place.within(key)
            try:
                return _piece(look(url).identity)
            except NoObjectError:
                return str(url)

        return in_order(find, keys)


def store_at(path: str) -> Store:
    """The store of a path."""
    if not isinstance(path, Url):
        return LocalStore(path)
    return WebStore(path) if path.web else BucketStore(path)


def is_remote_store(url: Url) -> bool:
    """Whether a remote folder has the metadata of an array or a group."""
    errors = list(in_order(_error, (url.within(name) for name in (*METADATA, *GROUPS))))
    # A bucket that may not be listed answers 403 for what is missing.
    if None not in errors and (refused := next((error for error in errors if not isinstance(error, UsageError)), None)):
        raise refused
    return None in errors


def _error(url: Url) -> PipelineError | None:
    try:
        look(url)
    except PipelineError as error:
        return error
    return None


def _within(url: Url, member: str) -> Url:
    return url if member == "." else url.within(member.strip("/"))


def _piece(identity: ObjectIdentity) -> Piece:
    return Piece(identity.url, 0, identity.size, identity)


def _first(place: Url) -> Piece:
    for kind in METADATA:
        try:
            return _piece(look(place.within(kind)).identity)
        except UsageError:
            continue
    raise UsageError(f"{place}: expected {' or '.join(METADATA)}, got none there; check the name")


def _json(path: str) -> dict[str, Any]:
    file = whole(path)
    if file.nbytes > MOST_JSON:
        raise ValueError(f"metadata of {file.nbytes} bytes")
    return json_of(bytes(next(stored_bytes((file,)))))


def _is_group(kind: str, metadata: dict[str, Any]) -> bool:
    return kind not in METADATA or (kind == "zarr.json" and metadata.get("node_type") == "group")


def _consolidated(metadata: dict[str, Any]) -> Named:
    """Arrays that the metadata of a group list, in version 3 by their names, in version 2 by those of their files."""
    inside = metadata.get("consolidated_metadata") or metadata
    for name, described in sorted((inside.get("metadata") or {}).items()):
        if described.get("node_type") == "array":
            yield name, described
        elif name.rpartition("/")[2] == ".zarray":
            yield name.rpartition("/")[0] or ".", described
