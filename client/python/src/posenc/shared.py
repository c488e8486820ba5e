"""Regions of shared memory: client and server map their tensors, and calls do not carry them."""

from __future__ import annotations

import errno
import math
import mmap
import os
import re
import secrets
import stat
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Optional

import numpy

from .arrays import dtype_of, reinterpreted
from .errors import PosencError
from .messages import SharedMemoryInfo
from .tensor import ELEMENT_BYTES, SharedMemory
from .wire import Buffer, invalid, number

_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
# Errors by which the server refuses a call before it writes anything.
_UNTOUCHED = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED")


class SharedRegion:
    """Memory for tensors, made by Client.shared_region(); a context that closes it.

    name: of its file; "" if the server shares no memory with this client: then
        it is ordinary memory, and calls send its bytes.
    """

    def __init__(self, bytes: int, info: Optional[SharedMemoryInfo], name: Optional[str], directory: Optional[str]):
        self.bytes: int = number("int64", bytes, "bytes")
        if self.bytes <= 0:
            raise invalid("bytes", f"is {bytes}; must be above 0")
        self.name = ""
        if info is None:
            self._memory: Optional[mmap.mmap] = mmap.mmap(-1, self.bytes)
            self._remove: Any = lambda: None
        else:
            if info.max_bytes and self.bytes > info.max_bytes:
                raise invalid("bytes", f"is {self.bytes}; the server maps at most {info.max_bytes}")
            self.name = f"{info.prefix}{os.getpid()}-{secrets.token_hex(8)}" if name is None else name
            _check_name(self.name, info.prefix)
            path = os.path.join(info.directory if directory is None else directory, self.name)
            self._memory = _new_file(path, self.bytes)
            # Runs also when the region is collected, and when Python ends.
            self._remove = weakref.finalize(self, _remove, path, os.getpid())
        self._begin = address_of(memoryview(self._memory))

    def array(self, shape: Sequence[int], dtype: Any = None, offset: int = 0) -> Any:
        """Views the bytes from `offset` on as an array of numpy, or of torch if
        dtype is torch's; by default float32. Calls send the view's place, and
        with `out` the server writes there."""
        if self._memory is None:
            raise invalid("region", "is closed; make another one")
        element, like = dtype_of("float32" if dtype is None else dtype)
        extents = [number("int64", n, "shape") for n in (shape if isinstance(shape, Iterable) else [shape])]
        offset = number("int64", offset, "offset")
        if min(extents, default=0) < 0:
            raise invalid("shape", f"is {extents}; must not be negative")
        if offset < 0 or offset % ELEMENT_BYTES[element]:
            raise invalid("offset", f"is {offset}; must be a multiple of {ELEMENT_BYTES[element]}, 0 or more")
        size = math.prod(extents) * ELEMENT_BYTES[element]
        if offset + size > self.bytes:
            raise invalid("shape", f"{extents} at offset {offset} needs {offset + size} bytes; there are {self.bytes}")
        memory = numpy.frombuffer(self._memory, numpy.uint8)[offset : offset + size]
        return reinterpreted(memory, extents, element, like)

    def close(self) -> None:
        """Removes the file. Views stay valid as ordinary arrays."""
        self._memory = None
        self._remove()

    def place(self, data: Buffer) -> Optional[SharedMemory]:
        """Returns the place of these bytes, or None outside of the region."""
        if self._memory is None or not self.name or not len(data):
            return None
        offset = address_of(data) - self._begin
        return SharedMemory(self.name, offset) if 0 <= offset <= self.bytes - len(data) else None

    def __enter__(self) -> SharedRegion:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class Regions:
    """The regions of a client."""

    def __init__(self) -> None:
        self._all: list[SharedRegion] = []

    def add(self, region: SharedRegion) -> SharedRegion:
        self._all = [*(known for known in self._all if known._memory is not None), region]
        return region

    def place(self, data: Buffer) -> Optional[SharedMemory]:
        return next(filter(None, (region.place(data) for region in self._all)), None)

    def close(self) -> None:
        for region in self._all:
            region.close()


def refused(error: PosencError) -> bool:
    """Returns whether bytes must be sent, because the server shares no memory with this client or is too
    old."""
    reasons = "SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN"
    return error.reason in reasons and error.code in ("UNIMPLEMENTED", "PERMISSION_DENIED")


def spoiled(error: PosencError, name: str) -> PosencError:
    """Returns the error of a call in place."""
    if error.code in _UNTOUCHED:
        return error
    return error.with_text(f"{error.text}; {name} may have been rotated by then, in part or whole: write it anew")


def address_of(data: Buffer) -> int:
    return int(numpy.frombuffer(data, numpy.uint8).__array_interface__["data"][0])


def _check_name(name: Any, prefix: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise invalid("name", f"is {name!r}; must be 1 to 255 letters, digits, '.', '_' and '-', and not '.' or '..'")
    if not name.startswith(prefix):
        raise invalid("name", f"is {name!r}; must begin with {prefix!r}")


def _new_file(path: str, size: int) -> mmap.mmap:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise invalid("name", f"{path} is there already; choose another one") from None
    except OSError as error:
        raise invalid("directory", f"{path}: {error.strerror}; must be the server's, as this process sees it") from None
    try:
        # Without it, a full file system would cause a signal when the bytes are used.
        os.posix_fallocate(file, 0, size)
        # Files in such a directory belong to its group, for example in a volume with an fsGroup.
        if os.stat(os.path.dirname(path)).st_mode & stat.S_ISGID:
            os.fchmod(file, 0o660)
        return mmap.mmap(file, size)
    except OSError as error:
        os.unlink(path)
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise
        raise PosencError(
            "RESOURCE_EXHAUSTED", f"bytes: no room for {size} in {os.path.dirname(path)}", field="bytes"
        ) from None
    finally:
        os.close(file)


def _remove(path: str, owner: int) -> None:
    if os.getpid() != owner:  # a child that was forked
        return
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
