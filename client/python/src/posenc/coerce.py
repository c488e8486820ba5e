"""Makes messages from the values that callers give: dicts, short names of enums, arrays, numbers of numpy."""

from __future__ import annotations

import base64
import difflib
import math
import operator
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from .arrays import borrow
from .errors import invalid
from .messages import Tensor
from .wire import REPEATED, Field, Message, fields_of, is_enum, is_message

M = TypeVar("M", bound=Message)
_INT_BITS = {"int32": 31, "int64": 63}


def message_of(cls: type[M], value: Any, path: str) -> M:
    """Returns `value` if it is a message; otherwise makes the message from a dict of its fields.

    Fields have the contract's names, or these names in JSON spelling (rotaryDim).
    Names of enum values may be short ("half_split"). Tensors may be arrays.
    If the first field of the message is a list, `value` may be this list.
    """
    if isinstance(value, cls):
        return value
    fields = {f.name: f for f in fields_of(cls).values()}
    first = next(iter(fields.values()), None)
    if isinstance(value, Mapping):
        given = {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), str(k)): v for k, v in value.items()}
    elif first and first.label == REPEATED and not isinstance(value, (str, bytes)):
        given = {first.name: value}
    else:
        raise invalid(path, f"is of type {type(value).__name__}; must be a dict or {cls.__name__}")
    for name in given.keys() - fields.keys():
        near = difflib.get_close_matches(name, fields, 1) or fields
        raise invalid(f"{path}.{name}", f"is no field of {cls.__name__}; near: {', '.join(near)}")
    return cls(**{k: _field_value(fields[k], v, f"{path}.{k}") for k, v in given.items() if v is not None})


def request_of(cls: type[M], **given: Any) -> M:
    """Makes a request from a method's arguments. An argument that is None leaves its field unset."""
    fields = {f.name: f for f in fields_of(cls).values()}
    return cls(**{k: _field_value(fields[k], v, k) for k, v in given.items() if v is not None})


def check_keywords(options: Mapping[str, Any], known: Any) -> None:
    """Raises TypeError for a keyword that `known`, a TypedDict, does not have."""
    unknown = options.keys() - known.__annotations__
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")


def _field_value(f: Field, value: Any, path: str) -> Any:
    if f.label != REPEATED:
        return coerce(f.kind, value, path)
    try:
        if isinstance(value, (str, bytes, Mapping)):
            raise TypeError
        values = list(value)
    except TypeError:
        raise invalid(path, f"is {value!r}; must be a list") from None
    return [coerce(f.kind, item, f"{path}[{i}]") for i, item in enumerate(values)]


def coerce(kind: Any, value: Any, path: str) -> Any:
    """Converts a caller's value to a field's value. A number may be text, and bytes may be base64, as in JSON."""
    if kind is Tensor and not isinstance(value, (Tensor, Mapping)):
        return borrow(value, path).tensor
    if is_message(kind):
        return message_of(kind, value, path)
    if is_enum(kind):
        return _enum(kind, value, path)
    try:
        if kind == "double":
            return float(value)
        if kind == "bool" and value in (True, False):
            return bool(value)
        if kind in _INT_BITS:
            # Configurations may have integers as floats (64.0).
            whole = isinstance(value, str) or (isinstance(value, float) and math.isfinite(value) and value % 1 == 0)
            number = int(value) if whole else operator.index(value)
            if not -(1 << _INT_BITS[kind]) <= number < 1 << _INT_BITS[kind]:
                raise invalid(path, f"{number} does not fit {kind}")
            return number
        if kind == "bytes":
            data = base64.b64decode(value, validate=True) if isinstance(value, str) else value
            return data if isinstance(data, bytes) else memoryview(data)
        if kind == "string" and isinstance(value, str):
            return value
    except (TypeError, ValueError):
        pass
    raise invalid(path, f"is {value!r}; must be {kind}")


def _enum(kind: Any, value: Any, path: str) -> Any:
    """Returns a value of an enum from "bshd", "BSHD", "LAYOUT_BSHD" or its number."""
    if not isinstance(value, str):
        try:
            number = operator.index(value)
        except TypeError:
            raise invalid(path, f"is {value!r}; must be a name of {kind.__name__}") from None
        # The server reports unknown numbers.
        return kind(number) if number in iter(kind) else number
    prefix = re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__)
    for name, member in kind.__members__.items():
        # The values of a nested enum have the enum's own name as prefix, so KerpleKernel.POWER is KERNEL_POWER.
        if value.upper().endswith(name) and f"{prefix}_{name}".upper().endswith(value.upper()):
            return member
    names = [name.lower() for name in kind.__members__ if name != "UNSPECIFIED"]
    raise invalid(path, f"{value!r} is no {kind.__name__}; must be one of {', '.join(names)}")
