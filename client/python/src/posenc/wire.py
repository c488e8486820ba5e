"""Protobuf's wire format for the dataclasses of messages.py.

Written by hand, so that a tensor is copied once into a request and never out of
an answer, and so that posenc works with every version of the protobuf package.
"""

from __future__ import annotations

import base64
import dataclasses
import difflib
import math
import operator
import re
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Union

from .errors import PosencError

Buffer = Union[bytes, memoryview]

# Number of values of a field; `OPTIONAL` scalars distinguish unset (None) from
# 0.
OPTIONAL, REPEATED = "optional", "repeated"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_INT_BITS = {"int32": 31, "int64": 63}


class Message:
    """A message of the contract. Subclasses are dataclasses of field()s."""

    _fields: ClassVar[dict[int, _Field]]


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str
    number: int
    kind: Any  # a scalar's name, or the class of an enum or of a message
    label: str
    numeric: bool  # packed if it is repeated
    tag: bytes  # encoded


def field(number: int, kind: Any, label: str = "") -> Any:
    """A field of a dataclass with its number and type on the wire."""
    metadata = {"wire": (number, kind, label)}
    if label == REPEATED:
        return dataclasses.field(default_factory=list, metadata=metadata)
    if label == OPTIONAL or not isinstance(kind, (str, type(IntEnum))):
        default: Any = None
    elif isinstance(kind, str):
        default = {"string": "", "bytes": b"", "bool": False, "double": 0.0}.get(kind, 0)
    else:
        default = kind(0)
    return dataclasses.field(default=default, metadata=metadata)


def fields_of(cls: Any) -> dict[int, _Field]:
    """Returns the fields of a message by number, in ascending order."""
    if "_fields" not in cls.__dict__:
        fields = [_field_of(f.name, *f.metadata["wire"]) for f in dataclasses.fields(cls)]
        cls._fields = {f.number: f for f in sorted(fields, key=lambda f: f.number)}
    found: dict[int, _Field] = cls._fields
    return found


def _field_of(name: str, number: int, kind: Any, label: str) -> _Field:
    numeric = kind not in ("string", "bytes") if isinstance(kind, str) else _is_enum(kind)
    wire_type = _BYTES if label == REPEATED or not numeric else _FIXED64 if kind == "double" else _VARINT
    return _Field(name, number, kind, label, numeric, _varint(number << 3 | wire_type))


# ---- Writing ----------------------------------------------------------------


def encode(message: Message) -> list[Buffer]:
    """Returns the pieces of a serialized message; large `bytes` fields are borrowed."""
    out: list[Buffer] = []
    _encode(message, out)
    return out


def size(pieces: Sequence[Buffer]) -> int:
    return sum(map(len, pieces))


def put(number: int, message: Message) -> list[Buffer]:
    """Returns the pieces of a field that holds `message`."""
    inner = encode(message)
    return [*header(number, size(inner)), *inner]


def header(number: int, length: int) -> list[Buffer]:
    """Returns what precedes the bytes of a message or of `bytes` in field `number`."""
    return [_varint(number << 3 | _BYTES) + _varint(length)]


def _varint(value: int) -> bytes:
    if 0 <= value < 128:
        return bytes((value,))
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode(message: Message, out: list[Buffer]) -> None:
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if f.label == REPEATED:
            if not value:
                continue
            if f.numeric:
                packed = _packed(f.kind, value)
                out.append(f.tag + _varint(len(packed)) + packed)
            else:
                for item in value:
                    _encode_one(f, item, out)
        elif value is None or (f.label != OPTIONAL and (f.numeric or isinstance(f.kind, str)) and not value):
            continue
        else:
            _encode_one(f, value, out)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, IntEnum)


def _packed(kind: Any, values: Any) -> bytes:
    if kind == "double":
        return struct.pack(f"<{len(values)}d", *values)
    return b"".join(map(_varint, values))


def _encode_one(f: _Field, value: Any, out: list[Buffer]) -> None:
    if f.kind == "double":
        out.append(f.tag + _DOUBLE.pack(value))
    elif f.numeric:
        out.append(f.tag + _varint(int(value)))
    elif isinstance(f.kind, str):
        data = value.encode() if f.kind == "string" else value
        out += [f.tag + _varint(len(data)), data]
    else:
        out += put(f.number, value)


# ---- Reading ----------------------------------------------------------------


def decode(cls: Any, data: Buffer) -> Any:
    """Reads a message. Its `bytes` fields are views of `data`."""
    try:
        return _decode(cls, memoryview(data))
    except (IndexError, TypeError, ValueError, struct.error) as error:
        raise PosencError("INTERNAL", f"the answer is no {cls.__name__}: {error}") from None


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError("varint of more than 10 bytes")


def _decode(cls: Any, view: memoryview) -> Any:
    fields = fields_of(cls)
    values: dict[str, Any] = {}
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            raw: Any
            raw, at = _read_varint(view, at)
        elif wire_type == _BYTES:
            length, at = _read_varint(view, at)
            raw = view[at : at + length]
            at += length
        elif wire_type == _FIXED64:
            raw = _DOUBLE.unpack_from(view, at)[0]
            at += 8
        elif wire_type == _FIXED32:
            raw = view[at : at + 4]
            at += 4
        else:
            raise IndexError(f"wire type {wire_type}")
        if at > len(view):
            raise IndexError("cut off")
        f = fields.get(tag >> 3)
        if f is None:
            continue  # from a newer server
        if f.label != REPEATED:
            values[f.name] = _decode_one(f.kind, raw)
        else:
            items = values.setdefault(f.name, [])
            if wire_type != _BYTES or f.kind in ("string", "bytes") or _is_message(f.kind):
                items.append(_decode_one(f.kind, raw))
            elif f.kind == "double":
                items.extend(struct.unpack(f"<{len(raw) // 8}d", raw))
            else:
                inner = 0
                while inner < len(raw):
                    value, inner = _read_varint(raw, inner)
                    items.append(_decode_one(f.kind, value))
    return cls(**values)


def _is_message(kind: Any) -> bool:
    return not isinstance(kind, str) and not _is_enum(kind)


def _decode_one(kind: Any, raw: Any) -> Any:
    if kind == "double" or kind == "bytes":
        return raw
    if kind == "string":
        return str(raw, "utf-8")
    if kind == "bool":
        return bool(raw)
    if isinstance(kind, str):
        return raw - (1 << 64) if raw >> 63 else raw
    if _is_enum(kind):
        try:
            return kind(raw)
        except ValueError:
            return raw  # from a newer server
    return _decode(kind, raw)


# ---- From dicts -------------------------------------------------------------


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


def _coerce(f: _Field, value: Any, path: str) -> Any:
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
    if _is_message(kind):
        return message_of(kind, value, path)
    if _is_enum(kind):
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


def optional_enum(kind: Any, value: Any, name: str) -> Any:
    return kind(0) if value is None else enum_of(kind, value, name)


def invalid(path: str, fact: str) -> PosencError:
    """Returns the error for a mistake that is found before anything is sent."""
    return PosencError("INVALID_ARGUMENT", f"{path}: {fact}", field=path)
