"""The methods of Client and AsyncClient, as steps (steps.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from . import messages as m
from .arrays import Borrowed, Output, array_of, borrow, dtype_of, output, shaped_output
from .collect import BiasMatrix
from .rotate import Rotated, Rotation, rotate
from .shared import Regions, SharedRegion
from .sharing import SharedCall
from .sources import movement_of, positions_of, rope_source
from .steps import Limits, Steps, Stream, Unary, answered, ask
from .tensor import ELEMENT_BYTES, Dtype
from .wire import coerce, decode, encode, invalid, message_of, number, optional_enum


def get_server_info() -> Steps[m.GetServerInfoResponse]:
    answer: m.GetServerInfoResponse = yield from ask("GetServerInfo", m.GetServerInfoRequest(), m.GetServerInfoResponse)
    return answer


def resolve(rope: Any, head_dim: int, compare_with: Any, length: int, **options: Any) -> Steps[m.ResolveRopeResponse]:
    request = m.ResolveRopeRequest(
        rope=rope_source(rope, **options),
        head_dim=number("int32", head_dim, "head_dim"),
        compare_with=None if compare_with is None else rope_source(compare_with, "compare_with"),
        length=number("int64", length, "length"),
    )
    answer: m.ResolveRopeResponse = yield from ask("ResolveRope", request, m.ResolveRopeResponse)
    return answer


def shared_region(
    regions: Regions, bytes: int, name: Optional[str], directory: Optional[str]
) -> Steps[SharedRegion]:
    server = yield from get_server_info()
    return regions.add(SharedRegion(bytes, server.shared_memory, name, directory))


def apply_rope(
    limits: Limits,
    regions: Regions,
    q: Any,
    k: Any,
    rope: Any,
    positions: Any,
    layout: Any,
    direction: Any,
    query_scale: Any,
    saturation: Any,
    out: Any,
) -> Steps[tuple[Any, Any]]:
    q_out, k_out = _pair_of_outputs(q, k, out)
    for name, array, into in (("q", q, q_out), ("k", k, k_out)):
        if array is None and into is not None:
            raise invalid(name + "_output", f"is given, but {name} is not; give both or neither")
    tensors = [
        Rotated.of(number, name, array, into, out_number)
        for number, name, array, into, out_number in ((14, "q", q, q_out, 7), (15, "k", k, k_out, 8))
        if array is not None
    ]
    source = rope_source(rope)
    request = m.ApplyRopeRequest(
        rope=source,
        layout=optional_enum(m.Layout, layout, "layout"),
        direction=optional_enum(m.Direction, direction, "direction"),
        query_scale=None if query_scale is None else message_of(m.QueryScale, query_scale, "query_scale"),
        saturation=optional_enum(m.Saturation, saturation, "saturation"),
    )
    call = Rotation(
        "ApplyRope",
        m.ApplyRopeResponse,
        encode(request),
        2,
        positions_of(positions),
        tensors,
    )
    results = dict(zip((t.name for t in tensors), (yield from rotate(call, limits, regions))))
    return results.get("q"), results.get("k")


def _pair_of_outputs(q: Any, k: Any, out: Any) -> tuple[Any, Any]:
    """Returns `out` as a pair; it may be one array if the call has one tensor."""
    if out is None:
        return None, None
    if isinstance(out, (tuple, list)):
        if len(out) != 2:
            raise invalid("out", f"has {len(out)} arrays; must be a pair (q, k)")
        return out[0], out[1]
    if q is not None and k is not None:
        raise invalid("out", "is one array; must be a pair (q, k), as both are given")
    return (out, None) if q is not None else (None, out)


def reposition(
    limits: Limits,
    regions: Regions,
    k: Any,
    rope: Any,
    new_rope: Any,
    old_positions: Any,
    new_positions: Any,
    shift: Any,
    layout: Any,
    saturation: Any,
    out: Any,
) -> Steps[Any]:
    old = rope_source(rope, "rope")
    new = None if new_rope is None else rope_source(new_rope, "new_rope")
    request = m.RepositionRequest(
        old_rope=old,
        new_rope=new,
        layout=optional_enum(m.Layout, layout, "layout"),
        saturation=optional_enum(m.Saturation, saturation, "saturation"),
    )
    call = Rotation(
        "Reposition",
        m.RepositionResponse,
        encode(request),
        3,
        movement_of(old_positions, new_positions, shift),
        [Rotated.of(15, "k", k, out, 6)] if k is not None else [],
    )
    results = yield from rotate(call, limits, regions)
    return results[0] if results else None


def build_bias(bias: Any, dtype: Any, causal: bool, **ranges: Any) -> Steps[Any]:
    element, like = dtype_of(dtype)
    request = m.BuildBiasRequest(
        bias=message_of(m.Bias, bias, "bias"),
        dtype=element,
        causal=coerce("bool", causal, "causal"),
        **{name: number("int64", value, name) for name, value in ranges.items()},
    )
    matrix = BiasMatrix(request, like)
    yield Stream("BuildBias", lambda: iter([encode(request)]), matrix.add)
    return matrix.result()


def _tensor_call(
    limits: Limits,
    regions: Regions,
    method: str,
    request: Any,
    arrays: dict[str, Borrowed],
    result: str,
    out: Optional[Output],
    dtype: int,
    shape: Optional[Sequence[int]],
) -> Steps[Any]:
    """Makes a unary call with these tensors. Its answer has the tensor `result`, of this shape if it is
    known."""
    like = next(iter(arrays.values()))
    out_bytes = -1 if shape is None else math.prod(shape) * ELEMENT_BYTES[dtype]
    answer_type = getattr(m, method + "Response")
    shared = SharedCall.of(regions, arrays, {result: out}, {result: out_bytes})
    if shared is not None:
        said = replace(request, **shared.tensors, **{result + "_output": shared.places[result]})
        answer = yield from shared.ask(method, encode(said), limits)
        if answer is not None:
            placed = shared.places[result] is not None
            tensor = answered(decode(answer_type, answer), result, dtype, shape, placed)
            return shared.result(result, tensor, like, result + "_output")
    request = replace(request, **{name: array.tensor for name, array in arrays.items()})
    answer = yield Unary(method, encode(request), sum(len(array.bytes) for array in arrays.values()))
    return array_of(answered(decode(answer_type, answer), result, dtype, shape), like, out, result + "_output")


def add_encoding(
    limits: Limits,
    regions: Regions,
    x: Any,
    encoding: Any,
    positions: Any,
    combination: Any,
    x_scale: Any,
    out: Any,
) -> Steps[Any]:
    array = borrow(x, "x")
    request = m.AddEncodingRequest(
        encoding=message_of(m.AbsoluteEncoding, encoding, "encoding"),
        positions=positions_of(positions),
        combination=optional_enum(m.Combination, combination, "combination"),
        x_scale=None if x_scale is None else number("double", x_scale, "x_scale"),
    )
    # Only the server knows the size of a concatenation, so it comes as bytes.
    known = request.combination != m.Combination.CONCATENATE
    shape = array.tensor.shape if known else None
    into = None if out is None else shaped_output(out, shape, array.tensor.dtype, "x_output")
    kind = array.tensor.dtype, shape
    return (yield from _tensor_call(limits, regions, "AddEncoding", request, {"x": array}, "x", into, *kind))


def score_relative(
    limits: Limits,
    regions: Regions,
    q: Any,
    k: Any,
    score: Any,
    query_start: int,
    key_start: int,
    dtype: Any,
    out: Any,
) -> Steps[Any]:
    array, keys = borrow(q, "q"), borrow(k, "k")
    request = m.ScoreRelativeRequest(
        score=message_of(m.RelativeScore, score, "score"),
        query_start=number("int64", query_start, "query_start"),
        key_start=number("int64", key_start, "key_start"),
        dtype=dtype_of(dtype)[0],
    )
    # [B, H, Sq, Sk] in the server's default for an unset dtype.
    element = request.dtype or (Dtype.FLOAT64 if array.tensor.dtype == Dtype.FLOAT64 else Dtype.FLOAT32)
    shape = [*array.tensor.shape[:3], *keys.tensor.shape[2:3]]
    into = None if out is None else shaped_output(out, shape, element, "scores_output")
    arrays, kind = {"q": array, "k": keys}, (element, shape)
    return (yield from _tensor_call(limits, regions, "ScoreRelative", request, arrays, "scores", into, *kind))


def convert_pairing(
    limits: Limits,
    regions: Regions,
    weight: Any,
    old_pairing: Any,
    new_pairing: Any,
    heads: int,
    rotary_dim: int,
    slice: Any,
    out: Any,
) -> Steps[Any]:
    array = borrow(weight, "weight")
    request = m.ConvertPairingRequest(
        old_pairing=optional_enum(m.Pairing, old_pairing, "old_pairing"),
        new_pairing=optional_enum(m.Pairing, new_pairing, "new_pairing"),
        heads=number("int32", heads, "heads"),
        rotary_dim=number("int32", rotary_dim, "rotary_dim"),
        slice=optional_enum(m.RotarySlice, slice, "slice"),
    )
    into = None if out is None else output(out, array, "weight_output")
    arrays, kind = {"weight": array}, (array.tensor.dtype, array.tensor.shape)
    return (yield from _tensor_call(limits, regions, "ConvertPairing", request, arrays, "weight", into, *kind))


def build_positions(scheme: dict[str, Any]) -> Steps[m.BuildPositionsResponse]:
    request = message_of(m.BuildPositionsRequest, scheme, "scheme")
    answer: m.BuildPositionsResponse = yield from ask("BuildPositions", request, m.BuildPositionsResponse)
    return answer


def analyze_rope(rope: Any, compare_with: Any, **numbers: Any) -> Steps[m.AnalyzeRopeResponse]:
    request = m.AnalyzeRopeRequest(
        rope=rope_source(rope),
        compare_with=None if compare_with is None else rope_source(compare_with, "compare_with"),
        **{name: number("int64", value, name) for name, value in numbers.items()},
    )
    answer: m.AnalyzeRopeResponse = yield from ask("AnalyzeRope", request, m.AnalyzeRopeResponse)
    return answer


def diagnose_rope(inputs: Any, readers: Any, length: int, runtime: str) -> Steps[m.DiagnoseRopeResponse]:
    given = {"inputs": inputs, "readers": readers, "length": length, "runtime": runtime}
    request = message_of(m.DiagnoseRopeRequest, given, "request")
    answer: m.DiagnoseRopeResponse = yield from ask("DiagnoseRope", request, m.DiagnoseRopeResponse)
    return answer
