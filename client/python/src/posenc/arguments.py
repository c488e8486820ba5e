"""The types of the methods' arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Optional, Protocol, TypedDict, Union

from numpy.typing import ArrayLike

from . import messages as m
from .arrays import DtypeLike


class Resolved(Protocol):
    """The result of Client.rope()."""

    source: m.RopeSource


class Configuration(Protocol):
    """A configuration of transformers."""

    def to_dict(self) -> dict[str, Any]: ...


RopeLike = Union[str, "os.PathLike[str]", Mapping[str, object], m.RopeSource, m.RopeSpec, Resolved, Configuration]
PositionsLike = Union[int, m.Positions, Mapping[str, object], ArrayLike]

# Each of these types is a message, or a dict of the message's fields.
QueryScale = Union[m.QueryScale, Mapping[str, object]]
Scheme = Union[m.BuildPositionsRequest, Mapping[str, object]]
Inputs = Iterable[Union[m.ModelDescription, Mapping[str, object]]]
Encoding = Union[m.AbsoluteEncoding, Mapping[str, object]]
Bias = Union[m.Bias, Mapping[str, object]]
Cache = Union[m.CacheLayout, Mapping[str, object]]
Score = Union[m.RelativeScore, Mapping[str, object]]
PairLayout = Literal["half", "duplicated", "pair_repeated"]


class CallOptions(TypedDict, total=False):
    """Every method takes these options by keyword.

    timeout: seconds for the whole call or stream, instead of the client's timeout.
    request_id: appears in the server's log; random by default.
    traceparent: the header `traceparent` of W3C Trace Context.
    """

    timeout: Optional[float]
    request_id: Optional[str]
    traceparent: Optional[str]


class SourceOptions(TypedDict, total=False):
    """Options for the interpretation of a configuration: reader, version, part, layer and sequence length."""

    profile: Optional[m.ProfileLike]
    profile_version: Optional[str]
    part: Optional[m.ModelPartLike]
    layer_type: Optional[str]
    layer_index: Optional[int]
    sequence_length: Optional[int]


class ResolveOptions(CallOptions, SourceOptions, total=False):
    """Keywords of Client.resolve() and Client.rope()."""


class RotationOptions(CallOptions, total=False):
    """Keywords of apply_rope() and Rope.apply(), except the positions."""

    direction: Optional[m.DirectionLike]
    query_scale: Optional[QueryScale]
    saturation: Optional[m.SaturationLike]
    out: object


class RepositionOptions(CallOptions, total=False):
    """Keywords of reposition(), except rope."""

    layout: Optional[m.LayoutLike]
    cache: Optional[Cache]
    new_rope: Optional[RopeLike]
    old_positions: Optional[PositionsLike]
    new_positions: Optional[PositionsLike]
    shift: object
    saturation: Optional[m.SaturationLike]
    block_format: Optional[m.BlockFormatLike]
    out: object


class TableOptions(CallOptions, total=False):
    """Keywords of build_table() and Rope.table(), except rope and layout."""

    rows: Optional[int]
    positions: Optional[PositionsLike]
    dtype: Optional[DtypeLike]
    for_keys: bool
    out: object
