"""Converts arrays of numpy, torch and other libraries to bytes, and back.

A contiguous little-endian array in host memory is not copied. All other arrays,
also those on a GPU, are copied once.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Protocol, Union

import numpy

from .errors import InternalError, invalid
from .messages import Dtype, Tensor
from .messages import DtypeLike as DtypeOrName
from .tensor import ELEMENT_BYTES, numpy_dtype
from .wire import Message

Array = numpy.ndarray[Any, Any]
# A function that makes an array of one library from bytes, a shape and a Dtype.
Wrap = Callable[[Array, Sequence[int], int], Any]


class TorchDtype(Protocol):
    """Stands for torch.dtype, because torch may not be installed."""

    @property
    def is_floating_point(self) -> bool: ...


DtypeLike = Union[DtypeOrName, "numpy.dtype[Any]", "type[Any]", TorchDtype]

_DTYPES = {d.name.lower(): d for d in Dtype if d}


@dataclass(frozen=True)
class Borrowed:
    """A caller's array as a tensor of a message, and the function that makes arrays of the same kind."""

    tensor: Tensor
    wrap: Wrap


@dataclass
class Result:
    """A tensor of an answer, with its expected dtype and shape. Its memory is the caller's `out`, or new memory."""

    name: str  # the answer's field; the request's field for the output is name + "_output"
    wrap: Wrap
    dtype: Optional[int]
    shape: Optional[Sequence[int]]  # None: only the server knows it
    out: Any = None

    def __post_init__(self) -> None:
        # A failed call may have written a part of this memory.
        self.memory: Optional[memoryview] = None if self.out is None else _writable(self)
        self.array: Any = self.out  # None until done()

    @property
    def output(self) -> str:
        return self.name + "_output"

    def room(self, dtype: int, shape: Sequence[int]) -> memoryview:
        """Returns the memory for a result of this dtype and shape."""
        size = math.prod(shape) * ELEMENT_BYTES.get(dtype, 0)
        if self.memory is None:
            try:
                self.memory = numpy.empty(size, numpy.uint8).data
            except MemoryError:
                raise MemoryError(f"{self.name}: no memory for the result, {size} bytes") from None
        if len(self.memory) != size:
            raise invalid(self.output, f"has {len(self.memory)} bytes; the result has {size}")
        return self.memory

    def done(self, dtype: int, shape: Sequence[int]) -> None:
        """Makes the caller's array after the memory is filled."""
        if self.array is None:
            self.array = self.wrap(numpy.asarray(self.memory), shape, dtype)

    def tensor(self, answer: Message, is_part: bool = False, is_placed: bool = False) -> Tensor:
        """Returns the tensor of an answer. is_part: the tensor may be a part of the result.
        is_placed: the server wrote the tensor's bytes to shared memory."""
        tensor: Optional[Tensor] = getattr(answer, self.name)
        if tensor is None:
            raise InternalError("INTERNAL", f"the answer has no {self.name}")
        element = ELEMENT_BYTES.get(tensor.dtype, 0)
        held = element * len(tensor.values) or len(tensor.data)
        fits = element > 0 and min(tensor.shape, default=0) >= 0 and self.dtype in (None, tensor.dtype)
        fits = fits and (is_placed or held == math.prod(tensor.shape) * element)
        if fits and (is_part or self.shape is None or tensor.shape == list(self.shape)):
            return tensor
        told = f"{tensor.dtype!r} {tensor.shape} with {held} bytes; must be {self.dtype!r} {self.shape}"
        raise InternalError("INTERNAL", f"the answer's {self.name} is {told}")

    def read(self, answer: Message) -> None:
        """Copies the tensor of an answer to the result's memory."""
        tensor = self.tensor(answer)
        data = numpy.asarray(tensor).reshape(-1).view(numpy.uint8).data if tensor.values else tensor.data
        self.room(tensor.dtype, tensor.shape)[:] = data
        self.done(tensor.dtype, tensor.shape)


def like(array: Borrowed, name: str, out: Any) -> Result:
    """Returns a result of the array's shape and dtype."""
    return Result(name, array.wrap, array.tensor.dtype, array.tensor.shape, out)


# ---- What a caller gives ------------------------------------------------------


def torch_of(array: Any) -> Any:
    """Returns the module torch if `array` is a torch tensor. Never imports torch."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def borrow(array: Any, name: str) -> Borrowed:
    """Views the caller's array. Copies it if it is big-endian, not contiguous, or on another device."""
    torch = torch_of(array)
    if torch is None:
        values = to_numpy(array, name)
        kind, size = values.dtype.name, values.nbytes
    else:
        if array.requires_grad and torch.is_grad_enabled():
            fact = "requires grad, and gradients do not pass through the service"
            raise invalid(name, f"{fact}; detach() it (direction='adjoint' is the gradient)")
        kind, size = _name(array.dtype), array.numel() * array.element_size()
    if kind not in _DTYPES:
        raise invalid(name, f"dtype {kind} is not supported; must be one of {', '.join(_DTYPES)}")
    try:
        if torch is not None:
            data, wrap = _torch_bytes(torch, array.detach().to("cpu").contiguous()), _as_torch(torch, array.device)
        else:
            contiguous = numpy.ascontiguousarray(values, values.dtype.newbyteorder("<"))
            data, wrap = contiguous.reshape(-1).view(numpy.uint8).data, _way_back(array)
    except (MemoryError, RuntimeError) as error:
        # torch raises a RuntimeError with the text "DefaultCPUAllocator: can't allocate memory".
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        raise MemoryError(f"{name}: no memory for a contiguous copy, {size} bytes") from None
    return Borrowed(Tensor(_DTYPES[kind], list(array.shape if torch else values.shape), data=data), wrap)


def to_numpy(array: Any, name: str) -> Array:
    """Views any array except a torch tensor as a numpy array."""
    try:
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            return numpy.from_dlpack(array)
        values = numpy.asarray(array)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise invalid(name, f"{type(array).__name__} is no array that numpy can view: {error}") from None
    if values.dtype == object:
        raise invalid(name, f"is of type {type(array).__name__}; must be an array of numbers")
    return values


def _torch_bytes(torch: Any, tensor: Any) -> memoryview:
    """Views the bytes of a contiguous tensor. Elements of a dtype that numpy lacks are first viewed as integers."""
    flat = tensor.reshape(-1)
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    elif flat.element_size() == 1:
        flat = flat.view(torch.uint8)
    array: Array = flat.numpy()
    return array.view(numpy.uint8).data


def _writable(result: Result) -> memoryview:
    """Returns the memory of the caller's `out`. Refuses an array that does not fit the result."""
    out, name = result.out, result.output
    torch = torch_of(out)
    if torch is not None:
        if out.device.type != "cpu" or not out.is_contiguous() or out.requires_grad:
            raise invalid(name, "must be a contiguous tensor in host memory without requires_grad")
    elif not isinstance(out, numpy.ndarray):
        raise invalid(name, f"is of type {type(out).__name__}; must be a numpy array or a torch tensor")
    elif not out.flags.writeable:
        raise invalid(name, "is read-only; must be an array that may be written")
    elif not out.flags.c_contiguous or out.dtype.byteorder == ">":
        raise invalid(name, "must be contiguous (C order) and of the machine's byte order")
    dtype = _DTYPES.get(_name(out.dtype))
    if dtype is None or result.dtype not in (None, dtype):
        wanted = Dtype(result.dtype).name.lower() if result.dtype else f"one of {', '.join(_DTYPES)}"
        raise invalid(name, f"has dtype {out.dtype}; must be {wanted}")
    if result.shape is not None and list(out.shape) != list(result.shape):
        raise invalid(name, f"has shape {list(out.shape)}; must be {list(result.shape)}")
    return _torch_bytes(torch, out.detach()) if torch else out.reshape(-1).view(numpy.uint8).data


# ---- What a caller gets -------------------------------------------------------


def as_numpy(memory: Array, shape: Sequence[int], dtype: int) -> Any:
    return memory.view(numpy_dtype(dtype)).reshape(shape)


def _as_torch(torch: Any, device: Any) -> Wrap:
    def wrap(memory: Array, shape: Sequence[int], dtype: int) -> Any:
        tensor = torch.from_numpy(memory).view(getattr(torch, Dtype(dtype).name.lower())).reshape(shape)
        return tensor if device is None else tensor.to(device)

    return wrap


def _way_back(array: Any) -> Wrap:
    """Returns the function that makes arrays of the same kind as `array`.
    This function uses the array API, or from_dlpack of the array's library."""
    namespace = getattr(array, "__array_namespace__", None)
    library: Any = sys.modules.get(type(array).__module__.partition(".")[0])
    back: Any
    if isinstance(array, memoryview):
        back = memoryview
    elif isinstance(array, numpy.ndarray):
        return as_numpy
    elif namespace is not None:
        back = namespace().asarray
    elif hasattr(array, "__dlpack__") and hasattr(library, "from_dlpack"):
        back = library.from_dlpack
    else:
        return as_numpy
    return lambda memory, shape, dtype: back(as_numpy(memory, shape, dtype))


def _name(dtype: Any) -> str:
    """Returns the name of a dtype of numpy or torch, or of a value that numpy accepts as a dtype."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype).rpartition(".")[2]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or numpy.dtype(dtype).name
    return str(name).lower().replace("dtype_", "")


def dtype_of(dtype: Any) -> tuple[Dtype, Wrap]:
    """Returns the Dtype for a name or for a dtype of numpy or torch, and the function that makes arrays of numpy
    or torch."""
    if dtype is None:
        return Dtype.UNSPECIFIED, as_numpy
    try:
        name = _name(dtype)
    except TypeError:
        name = repr(dtype)
    if name not in _DTYPES:
        raise invalid("dtype", f"{name} is not supported; must be one of {', '.join(_DTYPES)}")
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(dtype, torch.dtype)
    return _DTYPES[name], _as_torch(torch, None) if is_torch else as_numpy
