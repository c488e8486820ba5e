"""Converts arrays of numpy, torch and others to bytes, and back.

A contiguous little-endian array in host memory is not copied. All other arrays,
also those on a GPU, are copied once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy

from .errors import PosencError
from .tensor import ELEMENT_BYTES, ML_DTYPES, Dtype, Tensor, numpy_dtype
from .wire import Buffer, invalid

Array = numpy.ndarray[Any, Any]

_DTYPES = {d.name.lower(): d for d in Dtype if d}
_ACCEPTED = (
    "float32, float16, bfloat16 or float64 (positions also int32 or int64; heads also float8_e4m3fn or float8_e5m2)"
)


@dataclass(frozen=True)
class Borrowed:
    """A caller's array as a message's tensor, and a way to make another of its kind."""

    tensor: Tensor
    # From numpy's array; torch's dtypes that numpy lacks come as unsigned integers
    # of their size.
    wrap: Callable[[Array], Any]

    @property
    def bytes(self) -> memoryview:
        return memoryview(self.tensor.data)

    def fresh(self, shape: Sequence[int], dtype: int, name: str) -> Output:
        """Returns memory for a result of this array's kind."""
        size = _product(shape) * ELEMENT_BYTES.get(dtype, 0)
        check_memory(size)
        with _memory_for(name, "the result", size):
            memory = numpy.empty(size, numpy.uint8)
        return Output(memory.data, lambda: self.wrap(_shaped(memory, shape, dtype, self.wrap is not _as_numpy)))


@dataclass(frozen=True)
class Output:
    """The memory for a result, and the array that the caller gets."""

    bytes: memoryview
    result: Callable[[], Any]

    def fill(self, data: Buffer, name: str) -> Any:
        if len(data) != len(self.bytes):
            raise invalid(name, f"has {len(self.bytes)} bytes; the result has {len(data)}")
        self.bytes[:] = data
        return self.result()


def check_memory(size: int) -> None:
    """Refuses a result larger than the machine's memory: a kernel that overcommits
    would kill the process while the result is written."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return  # the size of memory is unknown
    if 0 < memory < size:
        text = f"the result has {size} bytes, and this machine {memory} of memory; ask for less, or take it in parts"
        raise PosencError("RESOURCE_EXHAUSTED", text)


@contextlib.contextmanager
def _memory_for(name: str, what: str, size: int) -> Iterator[None]:
    """Names the tensor in an error for lack of memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch has no error type for this: "DefaultCPUAllocator: can't allocate
        # memory".
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise MemoryError(f"{name}: no memory for {what}, {size} bytes") from None


def _product(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _as_numpy(array: Array) -> Any:
    return array


def _shaped(memory: Array, shape: Sequence[int], dtype: int, bits: bool) -> Array:
    if bits and dtype in ML_DTYPES:
        return memory.view(f"u{ELEMENT_BYTES[dtype]}").reshape(shape)
    return memory.view(numpy_dtype(dtype)).reshape(shape)


def torch_of(array: Any) -> Any:
    """Returns the torch module if `array` is one of its tensors; never imports it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def borrow(array: Any, name: str) -> Borrowed:
    """Views the caller's array; copies it if it is not contiguous or big-endian."""
    torch = torch_of(array)
    if torch is not None:
        return _borrow_torch(torch, array, name)
    if isinstance(array, numpy.ndarray):
        return Borrowed(_tensor(array, name), _as_numpy)
    if isinstance(array, Tensor):
        return Borrowed(_tensor(numpy.asarray(array), name), _as_numpy)
    values = _to_numpy(array, name)
    return Borrowed(_tensor(values, name), _way_back(array))


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


def _way_back(array: Any) -> Callable[[Array], Any]:
    """Returns the function that makes an array of the same kind: the array API's, or the library's
    from_dlpack."""
    if isinstance(array, memoryview):
        return lambda result: memoryview(result.data)
    namespace = getattr(array, "__array_namespace__", None)
    if namespace is not None:
        return namespace().asarray  # type: ignore[no-any-return]
    library = sys.modules.get(type(array).__module__.partition(".")[0])
    if hasattr(array, "__dlpack__") and hasattr(library, "from_dlpack"):
        return library.from_dlpack  # type: ignore[union-attr, no-any-return]
    return _as_numpy


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
    device = array.device
    with _memory_for(name, "a contiguous copy in host memory", array.numel() * array.element_size()):
        data = _torch_bytes(torch, array.detach().to("cpu").contiguous())

    def wrap(result: Array) -> Any:
        if result.dtype == numpy.uint8:
            return torch.from_numpy(result).view(array.dtype).to(device)
        return _torch_wrap(torch)(result).to(device)

    return Borrowed(Tensor(dtype=dtype, shape=list(array.shape), data=data), wrap)


def _torch_bytes(torch: Any, tensor: Any) -> memoryview:
    """Views a contiguous tensor, as its bits if numpy lacks the dtype."""
    flat = tensor.reshape(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    elif flat.element_size() == 1:
        flat = flat.view(torch.uint8)
    array: Array = flat.numpy()
    return array.view(numpy.uint8).data


def output(out: Any, like: Borrowed, name: str) -> Output:
    """Returns the caller's memory for a result with the shape and dtype of `like`."""
    return shaped_output(out, like.tensor.shape, like.tensor.dtype, name)


def shaped_output(out: Any, shape: Optional[Sequence[int]], dtype: int, name: str) -> Output:
    """Returns the caller's memory for a result. No shape: only the server knows it."""
    memory = writable(out, dtype, name)
    if shape is not None and list(out.shape) != list(shape):
        raise invalid(name, f"has shape {list(out.shape)}; must be {list(shape)}")
    return memory


def writable(out: Any, dtype: Optional[int], name: str) -> Output:
    """Returns the memory of an array for results."""
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
    return Output(memory, lambda: out)


def array_of(tensor: Tensor, like: Optional[Borrowed], out: Optional[Output], name: str) -> Any:
    """Returns a received tensor as an array of the caller's kind, with its own memory."""
    if tensor.values:
        tensor = Tensor(tensor.dtype, tensor.shape, [], numpy.asarray(tensor).reshape(-1).view(numpy.uint8).data)
    if out is None:
        out = (like or NUMPY).fresh(tensor.shape, tensor.dtype, name)
    return out.fill(tensor.data, name)


NUMPY = Borrowed(Tensor(), _as_numpy)


def dtype_of(dtype: Any) -> tuple[Dtype, Borrowed]:
    """Returns a Dtype from its name or from numpy's or torch's dtype, and the library that it belongs to."""
    if dtype is None:
        return Dtype.UNSPECIFIED, NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return _named(str(dtype).rpartition(".")[2]), Borrowed(Tensor(), _torch_wrap(torch))
    if isinstance(dtype, (Dtype, str)):
        name = dtype.name if isinstance(dtype, Dtype) else dtype
        return _named(name.lower().replace("dtype_", "")), NUMPY
    try:
        return _named(numpy.dtype(dtype).name), NUMPY
    except TypeError:
        raise invalid("dtype", f"is {dtype!r}; must be a dtype or its name: {', '.join(_DTYPES)}") from None


def _torch_wrap(torch: Any) -> Callable[[Array], Any]:
    def wrap(result: Array) -> Any:
        if result.dtype == numpy.uint16:
            return torch.from_numpy(result.view(numpy.int16)).view(torch.bfloat16)
        return torch.from_numpy(result)

    return wrap


def reinterpreted(memory: Array, shape: Sequence[int], dtype: Dtype, like: Borrowed) -> Any:
    """Views bytes as an array of numpy, or of torch if `like` is dtype_of() a torch dtype."""
    if like is NUMPY:
        return _shaped(memory, shape, dtype, False)
    torch = sys.modules["torch"]
    return torch.from_numpy(memory).view(getattr(torch, dtype.name.lower())).reshape(shape)


def _named(name: str) -> Dtype:
    if name not in _DTYPES:
        raise invalid("dtype", f"{name} is not supported; must be one of {', '.join(_DTYPES)}")
    return _DTYPES[name]
