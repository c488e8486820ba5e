"""Reads callers' ropes, positions and movements."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

import numpy

from .arguments import SourceOptions
from .arrays import borrow, torch_of
from .coerce import coerce, message_of, request_of
from .errors import invalid
from .messages import Movement, PackedSequences, Positions, RopeSource, RopeSpec
from .tensor import Tensor
from .wire import fields_of

_SPEC_FIELDS = {f.name for f in fields_of(RopeSpec).values()}
_SOURCES = {"spec", "preset", "config_json", "configJson"}


def rope_source(rope: Any, path: str = "rope", **options: Any) -> RopeSource:
    """Returns a RopeSource from a preset's name, a path, a dict or a model's
    configuration.

    options: SourceOptions; None is unset.
    """
    unknown = options.keys() - SourceOptions.__annotations__
    if unknown:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    given = request_of(RopeSource, **options)
    set_ = {name: getattr(given, name) for name, value in options.items() if value is not None}
    return dataclasses.replace(_rope_source(rope, path), **set_)


def other_source(rope: Any, path: str) -> Optional[RopeSource]:
    """Returns the RopeSource of a rope that may be left out."""
    return None if rope is None else rope_source(rope, path)


def _rope_source(rope: Any, path: str) -> RopeSource:
    if rope is None:
        return RopeSource()  # the server reports that it is required
    if hasattr(rope, "source") and isinstance(rope.source, RopeSource):
        return rope.source  # already resolved, by Client.rope()
    if isinstance(rope, RopeSource):
        return rope
    if isinstance(rope, RopeSpec):
        return RopeSource(spec=rope)
    if isinstance(rope, os.PathLike):
        return RopeSource(config_json=_read_config(os.fspath(rope), path))
    if isinstance(rope, str):
        if rope.lstrip().startswith("{"):
            return RopeSource(config_json=rope)
        if rope.endswith(".json") or "/" in rope or os.sep in rope:
            return RopeSource(config_json=_read_config(rope, path))
        return RopeSource(preset=rope)
    if isinstance(rope, Mapping):
        return _from_mapping(rope, path)
    # A transformers configuration. to_dict() is complete; its values that are
    # not JSON, such as torch's dtypes, do not concern the encoding.
    if hasattr(rope, "to_dict"):
        return RopeSource(config_json=json.dumps(rope.to_dict(), default=_json))
    raise invalid(path, f"is a {type(rope).__name__}; must be a preset's name, a path, a dict or a configuration")


def _from_mapping(rope: Mapping[str, Any], path: str) -> RopeSource:
    if _SOURCES & set(rope):
        source = dict(rope)
        spec = source.pop("spec", None)
        result: RopeSource = message_of(RopeSource, source, path)
        if spec is not None:
            result.spec = message_of(RopeSpec, spec, f"{path}.spec")
        return result
    # No configuration has a key "pairing", and every specification needs one (or
    # "nope"). A misspelt one is an error, because no key of a configuration is
    # similar.
    mistyped = difflib.get_close_matches("pairing", [key for key in rope if isinstance(key, str)], 1, 0.8)
    if mistyped or "nope" in rope or set(rope) <= _SPEC_FIELDS:
        return RopeSource(spec=message_of(RopeSpec, rope, f"{path}.spec"))
    return RopeSource(config_json=json.dumps(rope, default=_json))


def _json(value: Any) -> Any:
    """Converts values without a JSON type: numpy's numbers become numbers, others do not concern the
    encoding."""
    return value.tolist() if isinstance(value, (numpy.generic, numpy.ndarray)) else str(value)


def _read_config(file: str, path: str) -> str:
    """Returns the text of a config.json or params.json, or of the one in a model's folder."""
    if os.path.isdir(file):
        names = [os.path.join(file, name) for name in ("config.json", "params.json")]
        file = next(filter(os.path.exists, names), names[0])
    try:
        with open(file, encoding="utf-8") as text:
            return text.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise invalid(path, f"{file}: {reason}") from None


def positions_of(positions: Any, path: str = "positions") -> Optional[Positions]:
    """Returns positions from a start (an int), ids (an array or a list) or a dict."""
    if positions is None:
        return None  # the server checks whether they are required
    if isinstance(positions, Positions):
        return positions
    if isinstance(positions, Mapping):
        result: Positions = message_of(Positions, positions, path)
        return result
    if isinstance(positions, (int, numpy.integer)) and not isinstance(positions, bool):
        return Positions(start=coerce("int64", positions, f"{path}.start"))
    if isinstance(positions, (float, numpy.floating)):
        raise invalid(path, f"is {positions}; must be an int, the first token's, or an array or list with one a token")
    return Positions(ids=ids_of(positions, f"{path}.ids"))


def places_of(start: Any, positions: Any) -> Any:
    """Returns the positions of Rope.apply(); `start` is the first token's position."""
    if start is None:
        return positions
    if positions is not None:
        raise invalid("start", "is given beside positions; must be one of them")
    if not isinstance(start, (int, numpy.integer)) or isinstance(start, bool):
        raise invalid("start", f"is a {type(start).__name__}; must be an int (positions takes one a token)")
    return start


def ids_of(ids: Any, path: str) -> Tensor:
    """Returns one position or shift for each token. Widens small integers."""
    if torch_of(ids) is not None:
        kind = str(ids.dtype).rpartition(".")[2]
        if kind in ("int16", "int8", "uint8"):
            ids = ids.long()
        return borrow(ids, path).tensor
    if isinstance(ids, (list, tuple, range)):
        try:
            ids = numpy.array(ids)
        except ValueError as error:
            raise invalid(path, str(error)) from None
        if ids.size == 0:
            ids = ids.astype(numpy.int64)
    if isinstance(ids, numpy.ndarray) and ids.dtype.kind in "iu" and ids.dtype.itemsize != 4:
        if not numpy.can_cast(ids.dtype, numpy.int64):
            raise invalid(path, f"dtype {ids.dtype} is not supported; must be int32, int64, float32 or float64")
        ids = ids.astype(numpy.int64, copy=False)
    elif isinstance(ids, numpy.ndarray) and ids.dtype == numpy.uint32:
        ids = ids.astype(numpy.int64)
    return borrow(ids, path).tensor


def packed(cu_seqlens: Any, starts: Any = ()) -> Positions:
    """Returns positions of a packed batch ("thd"): sequence i has tokens [cu_seqlens[i], cu_seqlens[i +
    1])."""
    given = {"cu_seqlens": cu_seqlens, "starts": starts}
    return Positions(packed=message_of(PackedSequences, given, "positions.packed"))


def movement_of(old_positions: Any, new_positions: Any, shift: Any) -> Optional[Movement]:
    """Returns the keys' old and new positions; `shift` is an int, or one for each token."""
    if old_positions is None and new_positions is None and shift is None:
        return None  # the server reports the missing field
    if new_positions is not None and shift is not None:
        raise invalid("shift", "excludes new_positions")
    movement = Movement(
        old_positions=positions_of(old_positions, "old_positions"),
        new_positions=positions_of(new_positions, "new_positions"),
    )
    if isinstance(shift, (int, numpy.integer)) and not isinstance(shift, bool):
        movement.shift = coerce("int64", shift, "shift")
    elif shift is not None:
        movement.shifts = ids_of(shift, "shift")
    return movement
