"""Protobuf's wire format for the dataclasses of messages.py.

This module is written by hand for two reasons. It copies a tensor only once into
a request, and never out of an answer. It lets posenc work with every version of
the protobuf package.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, ClassVar, TypeVar, Union

from .errors import InternalError

Buffer = Union[bytes, memoryview]
M = TypeVar("M", bound="Message")

# Labels of fields. An OPTIONAL scalar distinguishes unset (None) from 0.
OPTIONAL, REPEATED = "optional", "repeated"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclasses.dataclass
class Message:
    """A message of the contract. Subclasses are dataclasses whose fields are made by field()."""

    _fields: ClassVar[dict[int, Field]]


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    number: int
    kind: Any  # a scalar's name, or the class of an enum or of a message
    label: str
    numeric: bool  # packed if it is repeated
    tag: bytes  # the encoded tag


def field(number: int, kind: Any, label: str = "") -> Any:
    """Makes a field of a dataclass with the field's number and type on the wire."""
    metadata = {"wire": (number, kind, label)}
    if label == REPEATED:
        return dataclasses.field(default_factory=list, metadata=metadata)
    default: Any = None
    if label != OPTIONAL and is_enum(kind):
        default = kind(0)
    elif label != OPTIONAL and isinstance(kind, str):
        default = {"string": "", "bytes": b"", "bool": False, "double": 0.0}.get(kind, 0)
    return dataclasses.field(default=default, metadata=metadata)


def fields_of(cls: type[Message]) -> dict[int, Field]:
    """Returns the fields of a message by number, in ascending order."""
    if "_fields" in cls.__dict__:
        return cls._fields
    fields = {}
    for f in sorted(dataclasses.fields(cls), key=lambda f: f.metadata["wire"][0]):
        number, kind, label = f.metadata["wire"]
        numeric = kind not in ("string", "bytes") and not is_message(kind)
        wire_type = _BYTES if label == REPEATED or not numeric else _FIXED64 if kind == "double" else _VARINT
        fields[number] = Field(f.name, number, kind, label, numeric, _varint(number << 3 | wire_type))
    cls._fields = fields
    return fields


def is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, IntEnum)


def is_message(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Message)


# ---- Writing ----------------------------------------------------------------


def encode(message: Message) -> list[Buffer]:
    """Returns the pieces of a serialized message. The values of `bytes` fields are not copied."""
    out: list[Buffer] = []
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if value is None or (f.label != OPTIONAL and not value):
            continue
        if f.label == REPEATED and f.numeric:
            packed = b"".join(piece for item in value for piece in _payload(f.kind, item))
            out += [f.tag, _varint(len(packed)), packed]
            continue
        for item in value if f.label == REPEATED else (value,):
            out += [f.tag, *_payload(f.kind, item)]
    return out


def size(pieces: Sequence[Buffer]) -> int:
    return sum(map(len, pieces))


def _payload(kind: Any, value: Any) -> list[Buffer]:
    if kind == "double":
        return [struct.pack("<d", value)]
    if is_message(kind):
        pieces = encode(value)
        return [_varint(size(pieces)), *pieces]
    if kind in ("string", "bytes"):
        data = value.encode() if kind == "string" else value
        return [_varint(len(data)), data]
    return [_varint(int(value))]


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


# ---- Reading ----------------------------------------------------------------


def decode(cls: type[M], data: Buffer) -> M:
    """Reads a message. Its `bytes` fields are views of `data`."""
    try:
        return _decode(cls, data)
    except (IndexError, TypeError, ValueError, struct.error) as error:
        raise InternalError("INTERNAL", f"the answer is no {cls.__name__}: {error}") from None


def scan(data: Buffer) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field. A value is an int, a float, or a view of the field's bytes."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        wire_type = tag & 7
        raw: Any
        if wire_type == _VARINT:
            raw, at = _read_varint(view, at)
        elif wire_type == _BYTES:
            length, at = _read_varint(view, at)
            raw = view[at : at + length]
            at += length
        elif wire_type == _FIXED64:
            raw = struct.unpack("<d", view[at : at + 8])[0]
            at += 8
        elif wire_type == _FIXED32:  # a field of a newer server: the contract has no fixed32 fields
            raw = 0
            at += 4
        else:
            raise IndexError(f"wire type {wire_type}")
        if at > len(view):
            raise IndexError("cut off")
        yield tag >> 3, raw


def _decode(cls: type[M], data: Buffer) -> M:
    fields = fields_of(cls)
    values: dict[str, Any] = {}
    for number, raw in scan(data):
        f = fields.get(number)
        if f is None:
            continue  # a field of a newer server
        if f.label != REPEATED:
            values[f.name] = _value(f.kind, raw)
            continue
        packed = f.numeric and isinstance(raw, memoryview)
        items = _unpacked(f.kind, raw) if packed else [raw]
        values.setdefault(f.name, []).extend(_value(f.kind, item) for item in items)
    return cls(**values)


def _value(kind: Any, raw: Any) -> Any:
    if kind == "double" or kind == "bytes":
        return raw
    if kind == "string":
        return str(raw, "utf-8")
    if kind == "bool":
        return bool(raw)
    if isinstance(kind, str):
        return raw - (1 << 64) if raw >> 63 else raw
    if is_message(kind):
        return _decode(kind, raw)
    try:
        return kind(raw)
    except ValueError:
        return raw  # an enum value of a newer server


def _unpacked(kind: Any, raw: memoryview) -> Iterator[Any]:
    if kind == "double":
        yield from struct.unpack(f"<{len(raw) // 8}d", raw)
        return
    at = 0
    while at < len(raw):
        item, at = _read_varint(raw, at)
        yield item


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise IndexError("varint of more than 10 bytes")
