"""Files that appear under their name whole or not at all.

A temporary file in the same folder gets the content; its size is checked, it is flushed to disk and renamed, and the
folder is flushed. Links are not followed, and a replaced file's mode is kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kernels.common.private import close
from pipeline.errors import PipelineError
from pipeline.storage.check_place import check_place, most_bytes, split, unsuitable
from pipeline.storage.layout import Publish
from pipeline.storage.leftovers import Resumable, listed, resumable
from pipeline.storage.output_lock import locked

TOKEN_BYTES = 4  # that make the name of a temporary file its own


@contextlib.contextmanager
def told(path: str) -> Iterator[None]:
    """Turn an OSError about a file into a line for the user."""
    try:
        yield
    except OSError as error:
        raise failed(path, error, "choose another place") from error


def failed(path: str, error: OSError, advice: str) -> PipelineError:
    """The line that says so."""
    reason = error.strerror or error  # without the temporary name
    return PipelineError(f"{path}: expected to write the file, got {reason}; {advice}")


@dataclass(frozen=True)
class Target:
    """A name that a file will get, in a folder that stays open.

    Attributes
    ----------
    path
        As the user gave it.
    descriptor, folder
        Of its folder.
    name
        In the folder.
    """

    path: str
    descriptor: int
    folder: str
    name: str

    def beside(self, ending: str) -> str:
        """A hidden name beside it that ends so; the name is cut short if it would be too long."""
        most = most_bytes(self.descriptor) - 1 - len(ending)
        return f".{os.fsencode(self.name)[:most].decode('utf-8', 'ignore')}{ending}"

    def status(self, name: str) -> os.stat_result | None:
        """Status of a file in the folder; None if there is none."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def whole(
        self, nbytes: int, keep: bool = False, later: Resumable | None = None, publish: Publish | None = None
    ) -> Iterator[BinaryIO]:
        """Open a temporary file, whose `name` is its path; on success it gets the name, otherwise it is removed.

        Parameters
        ----------
        nbytes
            Its final size; there has to be room for it, and it is checked.
        keep
            Whether to keep a file that is written but cannot be flushed to disk or get its name.
        later
            For a file that a later run may continue.
        publish
            Gives it the name if renaming it does not.

        Raises
        ------
        PipelineError
            If it cannot be opened, flushed or renamed. An existing file is left unchanged. Errors of the caller's own
            writes are left to `told`.
        """
        part = self._part(later.token if later else secrets.token_hex(TOKEN_BYTES))
        with listed(os.path.join(self.folder, part)) as forget, contextlib.ExitStack() as stack:
            with told(self.path):
                earlier = self.status(part) if later else None  # None also if something has removed it
                free = shutil.disk_usage(self.folder).free + (512 * earlier.st_blocks if earlier else 0)
            left = earlier is not None and later is not None and later.begun
            if earlier and not left:
                part = self._part(secrets.token_hex(TOKEN_BYTES))
                stack.enter_context(listed(os.path.join(self.folder, part)))
            if nbytes > free:
                raise PipelineError(f"{self.path}: expected {nbytes} free bytes in {self.folder}, got {free}; ask for "
                                    "less or free space")  # fmt: skip
            path = os.path.join(self.folder, part)
            with told(self.path):  # closed before it gets its name
                file = open(path, "r+b" if left else "x+b", opener=self._reopen if left else self._create)  # noqa: SIM115
            stack.callback(self._clean, file, later)  # after a success nothing has its name any more
            try:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # or an old list has it removed
                yield file
                try:
                    file.flush()
                    self._check(file.fileno(), nbytes)
                    os.fsync(file.fileno())
                    file.close()
                    self._publish(os.path.basename(file.name), publish)
                except OSError as error:
                    if not keep:
                        raise failed(self.path, error, "choose another place") from error
                    stack.pop_all()
                    forget()
                    raise failed(self.path, error, self._keep(os.path.basename(file.name), later)) from error
            finally:
                with contextlib.suppress(OSError):
                    file.close()
            self._flush()

    def aside(self, file: BinaryIO, later: Resumable) -> bool:
        """Whether a temporary file waits with another name because that of an earlier run, which could be continued,
        is still there: this run may be refused."""
        return os.path.basename(file.name) != self._part(later.token)

    def take_over(self, file: BinaryIO, later: Resumable) -> None:
        """Have a temporary file replace that of the earlier run, if it waits."""
        if not self.aside(file, later):
            return
        part = self._part(later.token)
        with told(self.path):
            os.rename(os.path.basename(file.name), part, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        # What `file.name` returns; `tempfile` sets it, too, but the type of a binary file has no `raw`.
        file.raw.name = os.path.join(self.folder, part)  # type: ignore[attr-defined]

    def _part(self, token: str) -> str:
        return self.beside(f".{token}.part")

    def write(self, content: bytes) -> None:
        """Write all of the file; PipelineError if that is not possible."""
        with self.whole(len(content)) as file, told(self.path):
            file.write(content)

    def remove_parts(self) -> None:
        """Remove what killed runs that were writing this file have left; for the holder of its lock."""
        end = f".{'0' * 2 * TOKEN_BYTES}.part"
        pattern = f"{re.escape(self.beside(end).removesuffix(end))}\\.[0-9a-f]{{{2 * TOKEN_BYTES}}}\\.part"
        with contextlib.suppress(OSError):
            for name in os.listdir(self.descriptor):
                if re.fullmatch(pattern, name, re.DOTALL) and not resumable(name):
                    self._remove(name)

    def _remove(self, part: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=self.descriptor)

    def _clean(self, file: BinaryIO, later: Resumable | None) -> None:
        if not (later and later.kept()):
            self._remove(os.path.basename(file.name))

    def _reopen(self, path: str, flags: int) -> int:
        """Open the temporary file of an earlier run."""
        return os.open(os.path.basename(path), flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.descriptor)

    def _create(self, path: str, flags: int) -> int:
        """Open the temporary file: where it will replace a private one it is private from the beginning."""
        mode = 0o666 if self.status(self.name) is None else 0o600
        return os.open(os.path.basename(path), flags | os.O_NOFOLLOW, mode, dir_fd=self.descriptor)

    def _check(self, file: int, nbytes: int) -> None:
        """Check the size of a file, and give it the mode of the one that it replaces."""
        status = os.fstat(file)
        if status.st_size != nbytes:
            raise PipelineError(f"{self.path}: expected to write {nbytes} bytes, got a file of {status.st_size}; does "
                                "another program write there?")  # fmt: skip
        if (old := self.status(self.name)) is not None and (old.st_mode ^ status.st_mode) & 0o777:
            os.fchmod(file, old.st_mode & 0o777)

    def _publish(self, part: str, publish: Publish | None) -> None:
        if (old := self.status(self.name)) is not None and (kind := unsuitable(old)) is not None:
            raise OSError(errno.EEXIST, f"{kind} in its place")
        if publish is not None:
            publish(self.descriptor, part, self.name)
        else:
            os.rename(part, self.name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def _keep(self, part: str, later: Resumable | None) -> str:
        """Have a file that cannot get its name stay, for a later run or under a name that nothing removes; says so."""
        with contextlib.suppress(OSError):
            if not (later and later.kept()):
                kept = self.beside(f".{secrets.token_hex(TOKEN_BYTES)}.kept")[1:]
                os.rename(part, kept, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
                part = kept
        with contextlib.suppress(OSError):
            if self.status(part) is None:
                return "what was written is lost: something has removed it"
        return f"what was written is kept as {os.path.join(self.folder, part)}"

    def _flush(self) -> None:
        """Flush the folder, so that the name survives a crash; some file systems cannot, and need not."""
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise PipelineError(f"{self.path}: was written, but its folder could not be flushed to disk: "
                                    f"{error.strerror}; check the disk") from error  # fmt: skip


@contextlib.contextmanager
def reserved(path: str | os.PathLike[str]) -> Iterator[Target]:
    """Check that a file can be written, and keep other runs from writing it meanwhile.

    Raises
    ------
    UsageError
        As `check_place`.
    PipelineError
        If another run is writing it, or its folder cannot be opened.
    """
    path = os.fspath(path)
    check_place(path)
    folder, name = split(path)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise PipelineError(
            f"{path}: expected to open its folder {folder}, got {error.strerror!r}; check its permissions"
        ) from None
    try:
        target = Target(path, descriptor, folder, name)
        lock = target.beside(".lock")
        with listed(os.path.join(target.folder, lock)), locked(descriptor, lock, path) as left:
            if left:
                target.remove_parts()
            yield target
    finally:
        close(descriptor)


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """`Target.write` to a path that is reserved meanwhile."""
    with reserved(path) as target:
        target.write(content)
