"""Makes messages from the ropes, positions and movements that callers pass."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Optional

import numpy

from .arguments import SourceOptions
from .arrays import borrow, to_numpy, torch_of
from .coerce import check_keywords, coerce, message_of, request_of
from .errors import invalid
from .messages import Movement, PackedSequences, Positions, RopeSource, RopeSpec, Tensor
from .wire import fields_of

_SPEC_FIELDS = {f.name for f in fields_of(RopeSpec).values()}
SOURCE_FIELDS = {"spec", "preset", "config_json", "configJson"}


def rope_source(rope: Any, path: str = "rope", **options: Any) -> RopeSource:
    """Returns a RopeSource from a preset's name, a path, a dict or a model's configuration.

    options: SourceOptions. An option that is None changes nothing.
    """
    check_keywords(options, SourceOptions)
    given = request_of(RopeSource, **options)
    changed = {name: getattr(given, name) for name, value in options.items() if value is not None}
    return dataclasses.replace(_rope_source(rope, path), **changed)


def other_source(rope: Any, path: str) -> Optional[RopeSource]:
    """Returns the RopeSource of an optional rope, or None if there is no rope."""
    return None if rope is None else rope_source(rope, path)


def _rope_source(rope: Any, path: str) -> RopeSource:
    if rope is None:
        return RopeSource()  # the server reports that it is required
    if isinstance(rope, RopeSource):
        return rope
    if isinstance(getattr(rope, "source", None), RopeSource):
        return _rope_source(rope.source, path)  # already resolved, by Client.rope()
    if isinstance(rope, RopeSpec):
        return RopeSource(spec=rope)
    if isinstance(rope, Mapping):
        return _from_mapping(rope, path)
    # A transformers configuration has a complete to_dict(). Values without a
    # JSON type, such as torch's dtypes, do not concern the encoding.
    if hasattr(rope, "to_dict"):
        return RopeSource(config_json=json.dumps(rope.to_dict(), default=_json))
    if not isinstance(rope, (str, os.PathLike)):
        kind = type(rope).__name__
        raise invalid(path, f"is of type {kind}; must be a preset's name, a path, a dict or a configuration")
    text = os.fspath(rope)
    if text.lstrip().startswith("{"):
        return RopeSource(config_json=text)
    if isinstance(rope, os.PathLike) or text.endswith(".json") or "/" in text or os.sep in text:
        return RopeSource(config_json=_read_config(text, path))
    return RopeSource(preset=text)


def _from_mapping(rope: Mapping[str, Any], path: str) -> RopeSource:
    if SOURCE_FIELDS & set(rope):
        return message_of(RopeSource, rope, path)
    # A specification needs the key "pairing" or "nope", which no configuration
    # has. No key of a configuration is similar to "pairing". So a dict with a
    # misspelt "pairing" is read as a specification, and refused.
    mistyped = difflib.get_close_matches("pairing", [key for key in rope if isinstance(key, str)], 1, 0.8)
    if mistyped or "nope" in rope or set(rope) <= _SPEC_FIELDS:
        return RopeSource(spec=message_of(RopeSpec, rope, f"{path}.spec"))
    return RopeSource(config_json=json.dumps(rope, default=_json))


def _json(value: Any) -> Any:
    """Converts values without a JSON type. Numbers of numpy become numbers.
    Other values become text, because they do not concern the encoding."""
    return value.tolist() if isinstance(value, (numpy.generic, numpy.ndarray)) else str(value)


def _read_config(file: str, path: str) -> str:
    """Returns the text of a config.json or params.json. `file` may be the model's folder."""
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
    if isinstance(positions, (Positions, Mapping)):
        return message_of(Positions, positions, path)
    if isinstance(positions, Integral):
        return Positions(start=coerce("int64", positions, f"{path}.start"))
    return Positions(ids=_ids(positions, f"{path}.ids"))


def _ids(ids: Any, path: str) -> Tensor:
    """Returns a tensor with a position or shift for each token. Widens small integers."""
    if isinstance(ids, Tensor):
        return ids
    values = ids.detach().cpu().numpy() if torch_of(ids) is not None else to_numpy(ids, path)
    if not values.shape:
        raise invalid(path, f"is {ids!r}; must be an int, or one per token")
    if (values.dtype.kind in "iu" and values.dtype.name not in ("int32", "int64")) or not values.size:
        try:
            values = values.astype(numpy.int64, casting="safe" if values.size else "unsafe")
        except TypeError:
            pass  # uint64, which borrow() refuses
    return borrow(values, path).tensor


def packed(cu_seqlens: Any, starts: Any = ()) -> Positions:
    """Returns positions of a packed batch ("thd").
    Sequence i has the tokens from cu_seqlens[i] to cu_seqlens[i + 1] - 1."""
    given = {"cu_seqlens": cu_seqlens, "starts": starts}
    return Positions(packed=message_of(PackedSequences, given, "positions.packed"))


def movement_of(old_positions: Any, new_positions: Any, shift: Any) -> Optional[Movement]:
    """Returns the old and new positions of keys. The argument `shift` is an int, or an int for each token."""
    if old_positions is None and new_positions is None and shift is None:
        return None  # the server reports the missing field
    if new_positions is not None and shift is not None:
        raise invalid("shift", "excludes new_positions")
    return Movement(
        old_positions=positions_of(old_positions, "old_positions"),
        new_positions=positions_of(new_positions, "new_positions"),
        shift=coerce("int64", shift, "shift") if isinstance(shift, Integral) else None,
        shifts=None if shift is None or isinstance(shift, Integral) else _ids(shift, "shift"),
    )
