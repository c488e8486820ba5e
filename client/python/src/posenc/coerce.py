"""Makes messages from what callers give: dicts, short names of enums, arrays, numbers of numpy."""

from __future__ import annotations

import base64
import difflib
import math
import operator
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from .errors import invalid
from .wire import REPEATED, Field, Message, fields_of, is_enum, is_message

M = TypeVar("M", bound=Message)
_INT_BITS = {"int32": 31, "int64": 63}
_NUMBERS = (*_INT_BITS, "double")


def message_of(cls: Any, value: Any, path: str) -> Any:
    """Returns a message from one of its class, or from a dict of its fields.

    Names are the contract's, or their JSON spelling (rotaryDim); enum values may
    be short ("half_split"); tensors may be arrays. A list is accepted for a
    message whose only, or first, field is a list.
    """
    fields = {f.name: f for f in fields_of(cls).values()}
    if isinstance(value, cls):
        given: dict[str, Any] = {name: getattr(value, name) for name in fields}
    elif hasattr(cls, "of_array") and not _names_fields(value, fields):
        return cls.of_array(value, path)
    elif isinstance(value, Mapping):
        given = {re.sub("[A-Z]", lambda m: "_" + m[0].lower(), str(k)): v for k, v in value.items()}
    elif next(iter(fields.values())).label == REPEATED and not isinstance(value, (str, bytes)):
        given = {next(iter(fields)): value}
    else:
        raise invalid(path, f"is a {type(value).__name__}; must be a dict or a {cls.__name__}")
    result = {}
    for name, item in given.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            raise invalid(
                f"{path}.{name}",
                f"is no field of {cls.__name__}; " + (f"near: {near[0]}" if near else f"there are {', '.join(fields)}"),
            )
        if item is not None:
            result[name] = _coerce(fields[name], item, f"{path}.{name}")
    return cls(**result)


def _names_fields(value: Any, fields: Mapping[str, Any]) -> bool:
    return isinstance(value, Mapping) and set(value) <= set(fields)


def _coerce(f: Field, value: Any, path: str) -> Any:
    if f.label != REPEATED:
        return coerce(f.kind, value, path)
    if isinstance(value, (str, bytes, Mapping)):
        raise invalid(path, f"is {value!r}; must be a list")
    try:
        values = list(value)
    except TypeError:
        raise invalid(path, f"is {value!r}; must be a list") from None
    return [coerce(f.kind, item, f"{path}[{i}]") for i, item in enumerate(values)]


def coerce(kind: Any, value: Any, path: str) -> Any:
    """Returns a field's value from a caller's value."""
    if is_message(kind):
        return message_of(kind, value, path)
    if is_enum(kind):
        return enum_of(kind, value, path)
    try:
        if kind == "double":
            return float(value)
        if kind == "bool":
            if not isinstance(value, (bool, int)) and type(value).__name__ not in ("bool_", "bool"):
                raise TypeError
            return bool(value)
        if kind in _INT_BITS:
            # JSON writes int64 as text.
            number = int(value) if isinstance(value, str) else _index(value)
            if not -(1 << _INT_BITS[kind]) <= number < 1 << _INT_BITS[kind]:
                raise invalid(path, f"{number} does not fit {kind}")
            return number
    except (TypeError, ValueError):
        raise invalid(path, f"is {value!r}; must be a {kind}") from None
    if kind == "string" and not isinstance(value, str):
        raise invalid(path, f"is {value!r}; must be a string")
    return _bytes(value, path) if kind == "bytes" else value


def _bytes(value: Any, path: str) -> Any:
    """Returns bytes from bytes, or from base64 as in JSON."""
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise invalid(path, "is a text that is no base64; must be bytes") from None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise invalid(path, f"is a {type(value).__name__}; must be bytes")
    return value


def request_of(cls: type[M], **given: Any) -> M:
    """Makes a request from a method's arguments; None is unset."""
    values = {}
    for f in fields_of(cls).values():
        value = given.pop(f.name, None)
        if is_message(f.kind) and isinstance(value, f.kind):
            values[f.name] = value
        elif value is not None:
            values[f.name] = number(f.kind, value, f.name) if f.kind in _NUMBERS else _coerce(f, value, f.name)
    return cls(**values, **given)


def number(kind: str, value: Any, path: str) -> Any:
    """Calls coerce() for an argument, which unlike a field of JSON is no text."""
    if isinstance(value, (str, bytes)):
        raise invalid(path, f"is {value!r}; must be a {kind}")
    return coerce(kind, value, path)


def _index(value: Any) -> int:
    """Returns an int; accepts a float without a fraction, as in configurations."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def enum_of(kind: Any, value: Any, path: str) -> Any:
    """Returns a value of an enum from "bshd", "BSHD", "LAYOUT_BSHD" or its number."""
    if isinstance(value, str):
        name = value.upper()
        prefix = re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).upper() + "_"
        # A nested enum's prefix is its own name: KerpleKernel.POWER is KERNEL_POWER.
        while prefix and not name.startswith(prefix):
            prefix = prefix.partition("_")[2]
        name = name[len(prefix) :] if name not in kind.__members__ else name
        if name in kind.__members__:
            return kind[name]
        names = [n.lower() for n in kind.__members__ if n != "UNSPECIFIED"]
        raise invalid(path, f"{value!r} is no {kind.__name__}; must be one of {', '.join(names)}")
    try:
        return kind(operator.index(value))
    except TypeError:
        raise invalid(path, f"is {value!r}; must be a name of {kind.__name__}") from None
    except ValueError:
        return operator.index(value)  # the server reports unknown numbers
