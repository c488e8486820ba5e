"""Regions of shared memory. Client and server map the same memory, and calls do not carry the tensors in it."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import mmap
import os
import re
import secrets
import stat
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

import numpy

from .arrays import Borrowed, DtypeLike, Result, dtype_of
from .coerce import coerce
from .errors import PosencError, ResourceExhaustedError, invalid
from .messages import SharedMemory, SharedMemoryInfo, Tensor
from .tensor import ELEMENT_BYTES
from .wire import Buffer, Message

# With these codes, except ABORTED, the server has written nothing. The text of an ABORTED error already says what to
# do.
_UNTOUCHED = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED")


class SharedRegion:
    """Memory for tensors, made by Client.shared_region(). It is a context manager that closes the region.

    name: the name of the file, or an empty text if the server shares no memory with this client.
        A region without a name is ordinary memory, and calls send its bytes.
    """

    def __init__(self, size: int, info: Optional[SharedMemoryInfo], name: Optional[str], directory: Optional[str]):
        self.size: int = coerce("int64", size, "size")
        if self.size <= 0:
            raise invalid("size", f"is {size}; must be above 0")
        self.name = ""
        if info is None:
            self._memory: Optional[mmap.mmap] = mmap.mmap(-1, self.size)
            self._remove: Any = lambda: None
        else:
            if info.max_bytes and self.size > info.max_bytes:
                raise invalid("size", f"is {self.size}; the server maps at most {info.max_bytes}")
            self.name = f"{info.prefix}{os.getpid()}-{secrets.token_hex(8)}" if name is None else name
            # A name with other characters, such as "/", could name a file in another directory.
            if not re.fullmatch(re.escape(info.prefix) + "[A-Za-z0-9._-]+", str(self.name)) or len(self.name) > 255:
                letters = "up to 255 letters, digits, '.', '_' and '-'"
                raise invalid("name", f"is {name!r}; must begin with {info.prefix!r}, and have {letters}")
            path = os.path.join(info.directory if directory is None else directory, self.name)
            self._memory = _new_file(path, self.size)
            # The finalizer also runs when the region is collected, and when Python ends.
            self._remove = weakref.finalize(self, _remove, path, os.getpid())
        self._begin = _address_of(memoryview(self._memory))

    def array(self, shape: Union[int, Sequence[int]], dtype: DtypeLike = "float32", offset: int = 0) -> Any:
        """Views the bytes from `offset` on as an array of numpy, or of torch if `dtype` is a dtype of torch.
        Calls send only the view's place. If the view is `out`, the server writes the result into the view."""
        if self._memory is None:
            raise invalid("region", "is closed; make another one")
        element, wrap = dtype_of(dtype)
        extents = [coerce("int64", n, "shape") for n in (shape if isinstance(shape, Iterable) else [shape])]
        if min(extents, default=0) < 0:
            raise invalid("shape", f"is {extents}; must not be negative")
        offset = coerce("int64", offset, "offset")
        if offset < 0 or offset % ELEMENT_BYTES[element]:
            raise invalid("offset", f"is {offset}; must be a multiple of {ELEMENT_BYTES[element]}, 0 or more")
        end = offset + math.prod(extents) * ELEMENT_BYTES[element]
        if end > self.size:
            raise invalid("shape", f"{extents} at offset {offset} needs {end} bytes; there are {self.size}")
        return wrap(numpy.frombuffer(self._memory, numpy.uint8)[offset:end], extents, element)

    def close(self) -> None:
        """Removes the file. Views stay valid as ordinary arrays."""
        self._memory = None
        self._remove()

    @property
    def is_open(self) -> bool:
        return self._memory is not None

    def place_of(self, data: Buffer) -> Optional[SharedMemory]:
        """Returns the place of `data` in the file, or None if `data` is outside of the region."""
        if self._memory is None or not self.name or not len(data):
            return None
        offset = _address_of(data) - self._begin
        return SharedMemory(self.name, offset) if 0 <= offset <= self.size - len(data) else None

    def __enter__(self) -> SharedRegion:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _address_of(data: Buffer) -> int:
    return int(numpy.frombuffer(data, numpy.uint8).__array_interface__["data"][0])


def _new_file(path: str, size: int) -> mmap.mmap:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise invalid("name", f"{path} is there already; choose another one") from None
    except OSError as error:
        raise invalid("directory", f"{path}: {error.strerror}; must be the server's, as this process sees it") from None
    try:
        # Without this allocation, the first use of the bytes would cause a signal on a full file system.
        os.posix_fallocate(file, 0, size)
        # In a directory with the set-group-ID bit, files belong to the group of the directory. A
        # Kubernetes volume with an fsGroup is an example.
        if os.stat(os.path.dirname(path)).st_mode & stat.S_ISGID:
            os.fchmod(file, 0o660)
        return mmap.mmap(file, size)
    except OSError as error:
        os.unlink(path)
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise
        text = f"size: no room for {size} bytes in {os.path.dirname(path)}"
        raise ResourceExhaustedError("RESOURCE_EXHAUSTED", text, field="size") from None
    finally:
        os.close(file)


def _remove(path: str, owner: int) -> None:
    if os.getpid() != owner:  # a child that was forked
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


class Placed:
    """A request that has places, instead of bytes, for the tensors and outputs that lie in a region.

    in_place: names of the tensors that the call overwrites.
    """

    def __init__(
        self, request: Message, inputs: Mapping[str, Borrowed], results: Sequence[Result], regions: list[SharedRegion]
    ) -> None:
        def place(data: Buffer) -> Optional[SharedMemory]:
            return next(filter(None, (region.place_of(data) for region in regions)), None)

        held = {name: place(array.tensor.data) for name, array in inputs.items()}
        # The server writes the whole result, even if `out` is smaller. So the result's shape must be known.
        known = [r for r in results if r.memory is not None and r.shape is not None]
        self._results = results
        self._outputs = {r.output: place(r.memory or b"") for r in known}
        self.has_places = any((*held.values(), *self._outputs.values()))
        self.in_place = [name for name, at in held.items() if at and at in self._outputs.values()]
        tensors = {
            name: Tensor(array.tensor.dtype, array.tensor.shape, shared=held[name]) if held[name] else array.tensor
            for name, array in inputs.items()
        }
        self.request = dataclasses.replace(request, **tensors, **self._outputs)

    def read(self, answer: Message) -> None:
        for result in self._results:
            if self._outputs.get(result.output):
                result.tensor(answer, is_placed=True)
            else:
                result.read(answer)

    def explained(self, error: PosencError) -> PosencError:
        """Adds to the error's text the tensors that a call in place may have changed; write these tensors again."""
        if self.in_place and error.code not in _UNTOUCHED:
            names = " and ".join(self.in_place)
            error.text += f"; {names} may have been rotated by then, in part or whole: write it anew"
        return error


def refused(error: PosencError) -> bool:
    """Returns whether bytes must be sent, because the server shares no memory with this client or is too old."""
    reasons = "SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN"
    return error.reason in reasons and error.code in ("UNIMPLEMENTED", "PERMISSION_DENIED")
