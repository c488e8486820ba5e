"""Converts arrays of numpy, torch and others to bytes, and back.

A contiguous little-endian array in host memory is not copied. All other arrays,
also those on a GPU, are copied once.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Optional, Protocol, Union

import numpy

from .errors import ResourceExhaustedError, internal, invalid
from .tensor import ELEMENT_BYTES, Dtype, Tensor, numpy_dtype
from .wire import Message

Array = numpy.ndarray[Any, Any]
# Makes an array of some library from bytes, a shape and a Dtype.
Wrap = Callable[[Array, Sequence[int], int], Any]


class TorchDtype(Protocol):
    """torch.dtype, for those who do not have torch."""

    @property
    def is_floating_point(self) -> bool: ...


DtypeName = Literal["float32", "float16", "bfloat16", "float64", "int32", "int64", "float8_e4m3fn", "float8_e5m2"]
DtypeLike = Union[Dtype, DtypeName, "numpy.dtype[Any]", "type[Any]", TorchDtype]

_DTYPES = {d.name.lower(): d for d in Dtype if d}
_ACCEPTED = (
    "float32, float16, bfloat16 or float64 (positions also int32 or int64; heads also float8_e4m3fn or float8_e5m2)"
)


@dataclass(frozen=True)
class Borrowed:
    """A caller's array as a message's tensor, and the way to make another of its kind."""

    tensor: Tensor
    wrap: Wrap


@dataclass(frozen=True)
class Memory:
    """The memory of a result, and the array that the caller gets."""

    bytes: memoryview
    array: Callable[[], Any]


@dataclass(frozen=True)
class Result:
    """A tensor of an answer: what is known of it before, and the caller's memory for it, if any."""

    name: str  # of the field; "_output" is appended for the caller's memory
    wrap: Wrap
    dtype: Optional[int]
    shape: Optional[Sequence[int]]  # None: only the server knows it
    out: Any = None
    beside: int = 1  # number of results of this size

    @property
    def output(self) -> str:
        return self.name + "_output"

    @property
    def size(self) -> int:
        """Bytes; -1 if they are not known."""
        return -1 if self.shape is None else math.prod(self.shape) * ELEMENT_BYTES.get(self.dtype or 0, 0)

    def given(self) -> Optional[Memory]:
        """Returns the caller's memory, which must fit."""
        if self.out is None:
            return None
        memory = _writable(self.out, self.dtype, self.output)
        if self.shape is not None and list(self.out.shape) != list(self.shape):
            raise invalid(self.output, f"has shape {list(self.out.shape)}; must be {list(self.shape)}")
        return memory

    def memory(self, dtype: int, shape: Sequence[int]) -> Memory:
        """Returns the caller's memory, or new memory, for what the server sends."""
        size = math.prod(shape) * ELEMENT_BYTES.get(dtype, 0)
        memory = self.given()
        if memory is None:
            _check_memory(size * self.beside)
            with _memory_for(self.name, "the result", size):
                new = numpy.empty(size, numpy.uint8)
            return Memory(new.data, lambda: self.wrap(new, shape, dtype))
        if len(memory.bytes) != size:
            raise invalid(self.output, f"has {len(memory.bytes)} bytes; the result has {size}")
        return memory

    def tensor(self, answer: Message, placed: bool = False) -> Tensor:
        """Returns the tensor of an answer. placed: the server wrote its bytes to shared memory."""
        tensor: Optional[Tensor] = getattr(answer, self.name)
        if tensor is None:
            raise internal(f"the answer has no {self.name}")
        element = ELEMENT_BYTES.get(tensor.dtype, 0)
        held = element * len(tensor.values) or len(tensor.data)
        fits = element > 0 and min(tensor.shape, default=0) >= 0
        fits = fits and (placed or held == math.prod(tensor.shape) * element) and self.dtype in (None, tensor.dtype)
        if fits and (self.shape is None or tensor.shape == list(self.shape)):
            return tensor
        wanted = "" if self.shape is None else f"; must be {_told(self.dtype, self.shape)}"
        told = _told(tensor.dtype, tensor.shape)
        raise internal(f"the answer's {self.name} is {told} with {held} bytes{wanted}")

    def array(self, answer: Message) -> Any:
        """Returns the tensor of an answer as the caller's array, with its own memory."""
        tensor = self.tensor(answer)
        memory = self.memory(tensor.dtype, tensor.shape)
        values = numpy.asarray(tensor).reshape(-1).view(numpy.uint8).data if tensor.values else None
        memory.bytes[:] = tensor.data if values is None else values
        return memory.array()


def like(array: Borrowed, name: str, out: Any) -> Result:
    """Returns a result of the array's shape and dtype."""
    return Result(name, array.wrap, array.tensor.dtype, array.tensor.shape, out)


def _told(dtype: Any, shape: Sequence[int]) -> str:
    return f"{getattr(dtype, 'name', dtype)} {list(shape)}"


def _check_memory(size: int) -> None:
    """Refuses a result larger than the machine's memory: a kernel that overcommits
    would kill the process while the result is written."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return  # the size of memory is unknown
    if 0 < memory < size:
        text = f"the result has {size} bytes, and this machine {memory} of memory; ask for less, or take it in parts"
        raise ResourceExhaustedError("RESOURCE_EXHAUSTED", text)


@contextlib.contextmanager
def _memory_for(name: str, what: str, size: int) -> Iterator[None]:
    """Names the tensor in an error for lack of memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch has no error type for this: "DefaultCPUAllocator: can't allocate memory".
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise MemoryError(f"{name}: no memory for {what}, {size} bytes") from None


# ---- What a caller gives ------------------------------------------------------


def torch_of(array: Any) -> Any:
    """Returns the torch module if `array` is one of its tensors; never imports it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def borrow(array: Any, name: str) -> Borrowed:
    """Views the caller's array; copies it if it is not contiguous or big-endian."""
    torch = torch_of(array)
    if torch is not None:
        return _borrow_torch(torch, array, name)
    if isinstance(array, (numpy.ndarray, Tensor)):
        return Borrowed(_tensor(numpy.asarray(array), name), as_numpy)
    return Borrowed(_tensor(_to_numpy(array, name), name), _way_back(array))


def _to_numpy(array: Any, name: str) -> Array:
    try:
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            return numpy.from_dlpack(array)
        values = numpy.asarray(array)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise invalid(name, f"{type(array).__name__} is no array that numpy can view: {error}") from None
    if values.dtype == object:
        raise invalid(name, f"is a {type(array).__name__}; must be an array of numbers")
    return values


def _tensor(array: Array, name: str) -> Tensor:
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise invalid(name, f"dtype {array.dtype.name} is not supported; must be {_ACCEPTED}")
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        with _memory_for(name, "a copy in the wire's byte order", array.nbytes):
            array = array.astype(array.dtype.newbyteorder("<"))
    with _memory_for(name, "a contiguous copy", array.nbytes):
        data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8).data
    return Tensor(dtype=dtype, shape=list(array.shape), data=data)


def _borrow_torch(torch: Any, array: Any, name: str) -> Borrowed:
    if array.requires_grad and torch.is_grad_enabled():
        raise invalid(
            name,
            "requires grad, and gradients do not pass through the service; detach() it "
            "(direction='adjoint' is the gradient)",
        )
    dtype = _DTYPES.get(str(array.dtype).rpartition(".")[2])
    if dtype is None:
        raise invalid(name, f"dtype {array.dtype} is not supported; must be {_ACCEPTED}")
    with _memory_for(name, "a contiguous copy in host memory", array.numel() * array.element_size()):
        data = _torch_bytes(torch, array.detach().to("cpu").contiguous())
    return Borrowed(Tensor(dtype=dtype, shape=list(array.shape), data=data), _as_torch(torch, array.device))


def _torch_bytes(torch: Any, tensor: Any) -> memoryview:
    """Views a contiguous tensor, as its bits if numpy lacks the dtype."""
    flat = tensor.reshape(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    elif flat.element_size() == 1:
        flat = flat.view(torch.uint8)
    array: Array = flat.numpy()
    return array.view(numpy.uint8).data


def _writable(out: Any, dtype: Optional[int], name: str) -> Memory:
    """Returns the memory of a caller's array for a result."""
    torch = torch_of(out)
    if torch is not None:
        if out.device.type != "cpu" or not out.is_contiguous() or out.requires_grad:
            raise invalid(name, "must be a contiguous tensor in host memory without requires_grad")
        found, memory = _DTYPES.get(str(out.dtype).rpartition(".")[2]), _torch_bytes(torch, out.detach())
    elif isinstance(out, numpy.ndarray):
        if not out.flags.writeable:
            raise invalid(name, "is read-only; must be an array that may be written")
        if not out.flags.c_contiguous or out.dtype.byteorder == ">":
            raise invalid(name, "must be contiguous (C order) and of the machine's byte order")
        found = _DTYPES.get(out.dtype.name)
        memory = out.reshape(-1).view(numpy.uint8).data if found is not None else memoryview(b"")
    else:
        raise invalid(name, f"is a {type(out).__name__}; must be a numpy array or a torch tensor")
    if found is None or (dtype is not None and found != dtype):
        wanted = Dtype(dtype).name.lower() if dtype else _ACCEPTED
        raise invalid(name, f"has dtype {out.dtype}; must be {wanted}")
    return Memory(memory, lambda: out)


# ---- What a caller gets -------------------------------------------------------


def as_numpy(memory: Array, shape: Sequence[int], dtype: int) -> Any:
    return memory.view(numpy_dtype(dtype)).reshape(shape)


def _as_torch(torch: Any, device: Any) -> Wrap:
    def wrap(memory: Array, shape: Sequence[int], dtype: int) -> Any:
        tensor = torch.from_numpy(memory).view(getattr(torch, Dtype(dtype).name.lower())).reshape(shape)
        return tensor if device is None else tensor.to(device)

    return wrap


def _way_back(array: Any) -> Wrap:
    """Returns what makes an array of the same kind: the array API, or the library's from_dlpack."""
    namespace = getattr(array, "__array_namespace__", None)
    library: Any = sys.modules.get(type(array).__module__.partition(".")[0])
    back: Any
    if isinstance(array, memoryview):
        back = memoryview
    elif namespace is not None:
        back = namespace().asarray
    elif hasattr(array, "__dlpack__") and hasattr(library, "from_dlpack"):
        back = library.from_dlpack
    else:
        return as_numpy
    return lambda memory, shape, dtype: back(as_numpy(memory, shape, dtype))


def dtype_of(dtype: Any) -> tuple[Dtype, Wrap]:
    """Returns a Dtype from its name or from numpy's or torch's dtype, and the library that it belongs to."""
    if dtype is None:
        return Dtype.UNSPECIFIED, as_numpy
    torch = sys.modules.get("torch")
    wrap: Wrap = as_numpy
    if torch is not None and isinstance(dtype, torch.dtype):
        name, wrap = str(dtype).rpartition(".")[2], _as_torch(torch, None)
    elif isinstance(dtype, (Dtype, str)):
        name = (dtype.name if isinstance(dtype, Dtype) else dtype).lower().replace("dtype_", "")
    else:
        try:
            name = numpy.dtype(dtype).name
        except TypeError:
            raise invalid("dtype", f"is {dtype!r}; must be a dtype or its name: {', '.join(_DTYPES)}") from None
    if name not in _DTYPES:
        raise invalid("dtype", f"{name} is not supported; must be one of {', '.join(_DTYPES)}")
    return _DTYPES[name], wrap
