"""The methods of Client and AsyncClient, as steps (steps.py)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Optional

from . import messages as m
from .arrays import Borrowed, Output, array_of, borrow, dtype_of, writable
from .collect import BiasMatrix, TableRows, rows_of
from .errors import PosencError
from .rotate import Rotated, Rotation, rotate
from .shared import Regions, SharedRegion
from .sharing import SharedCall
from .sources import movement_of, positions_of, rope_source
from .steps import Limits, Steps, Stream, Unary, ask, too_large
from .tensor import ELEMENT_BYTES, Dtype, Tensor
from .wire import decode, encode, enum_of, invalid, message_of, number

# About the bytes of a table's row: 128 channels, cosines and sines, in float32.
_ROW_BYTES = 1024


class RotaryTable(tuple):  # type: ignore[type-arg]
    """A pair (cos, sin), and the attention factor that is in their values already."""

    amplitude: float

    def __new__(cls, cos: Any, sin: Any, amplitude: float) -> RotaryTable:
        table = super().__new__(cls, (cos, sin))
        table.amplitude = amplitude
        return table

    @property
    def cos(self) -> Any:
        return self[0]

    @property
    def sin(self) -> Any:
        return self[1]


def _enum(kind: Any, value: Any, name: str) -> Any:
    return kind(0) if value is None else enum_of(kind, value, name)


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
            raise invalid(f"out ({name})", f"is given, but {name} is not; give both or neither")
    tensors = [
        Rotated.of(number, name, array, into, out_number)
        for number, name, array, into, out_number in ((14, "q", q, q_out, 7), (15, "k", k, k_out, 8))
        if array is not None
    ]
    source = rope_source(rope)
    request = m.ApplyRopeRequest(
        rope=source,
        layout=_enum(m.Layout, layout, "layout"),
        direction=_enum(m.Direction, direction, "direction"),
        query_scale=None if query_scale is None else message_of(m.QueryScale, query_scale, "query_scale"),
        saturation=_enum(m.Saturation, saturation, "saturation"),
    )
    call = Rotation(
        "ApplyRope",
        m.ApplyRopeResponse,
        encode(request),
        2,
        positions_of(positions),
        request.layout,
        [source],
        tensors,
    )
    results = dict(zip((t.name for t in tensors), (yield from rotate(call, limits, regions))))
    return results.get("q"), results.get("k")


def _pair_of_outputs(q: Any, k: Any, out: Any) -> tuple[Any, Any]:
    """out is a pair, or one array if there is one tensor."""
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
        layout=_enum(m.Layout, layout, "layout"),
        saturation=_enum(m.Saturation, saturation, "saturation"),
    )
    call = Rotation(
        "Reposition",
        m.RepositionResponse,
        encode(request),
        3,
        movement_of(old_positions, new_positions, shift),
        request.layout,
        [old] if new is None else [old, new],
        [Rotated.of(15, "k", k, out, 6)] if k is not None else [],
    )
    results = yield from rotate(call, limits, regions)
    return results[0] if results else None


def build_table(
    limits: Limits, rope: Any, absolute: Any, rows: Any, positions: Any, layout: Any, dtype: Any, for_keys: bool
) -> Steps[Any]:
    element, like = dtype_of(dtype)
    encoding = None if absolute is None else message_of(m.AbsoluteEncoding, absolute, "absolute")
    if rope is not None and encoding is not None:
        raise invalid("absolute", "excludes rope")
    if positions is None and not (encoding and encoding.sincos_grid):
        positions = 0
    request = m.BuildTableRequest(
        rope=None if rope is None else rope_source(rope),
        absolute=encoding,
        positions=positions_of(positions),
        rows=0 if rows is None else number("int64", rows, "rows"),
        layout=_enum(m.TableLayout, layout, "layout"),
        dtype=element,
        for_keys=for_keys,
    )
    # About so large is the answer. Large ones come faster as a stream.
    expected = rows_of(request) * _ROW_BYTES
    if expected > limits.stream_above_bytes:
        try:
            return (yield from _table_in_parts(request, like))
        except PosencError as error:
            # The stream would name fields of a message around this one.
            if error.code not in ("INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"):
                raise
    try:
        answer = yield Unary("BuildTable", encode(request), expected)
    except PosencError as error:
        if not too_large(error):
            raise
        return (yield from _table_in_parts(request, like))
    message = decode(m.BuildTableResponse, answer)
    cos, sin, table = (
        None if tensor is None else array_of(tensor, like, None, "table")
        for tensor in (message.cos, message.sin, message.table)
    )
    return _table(cos, sin, table, message.amplitude)


def _table_in_parts(request: m.BuildTableRequest, like: Borrowed) -> Steps[Any]:
    rows = TableRows(request, like)
    yield Stream("BuildTableStream", lambda: iter([encode(m.BuildTableStreamRequest(table=request))]), rows.add)
    return _table(rows.result("cos"), rows.result("sin"), rows.result("table"), rows.amplitude)


def _table(cos: Any, sin: Any, table: Any, amplitude: float) -> Any:
    return table if cos is None else RotaryTable(cos, sin, amplitude)


def build_bias(bias: Any, dtype: Any, causal: bool, **ranges: Any) -> Steps[Any]:
    element, like = dtype_of(dtype)
    request = m.BuildBiasRequest(
        bias=message_of(m.Bias, bias, "bias"),
        dtype=element,
        causal=causal,
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
    out_bytes: int,
) -> Steps[Any]:
    """A unary call with these tensors, whose answer has the tensor `result`."""
    like = next(iter(arrays.values()))
    answer_type = getattr(m, method + "Response")
    shared = SharedCall.of(regions, arrays, {result: out}, {result: out_bytes})
    if shared is not None:
        said = replace(request, **shared.tensors, **{result + "_output": shared.places[result]})
        answer = yield from shared.ask(method, encode(said), limits)
        if answer is not None:
            return shared.result(result, _given(getattr(decode(answer_type, answer), result)), like, "out")
    request = replace(request, **{name: array.tensor for name, array in arrays.items()})
    answer = yield Unary(method, encode(request), sum(len(array.bytes) for array in arrays.values()))
    return array_of(_given(getattr(decode(answer_type, answer), result)), like, out, "out")


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
        combination=_enum(m.Combination, combination, "combination"),
        x_scale=None if x_scale is None else number("double", x_scale, "x_scale"),
    )
    into = None if out is None else writable(out, array.tensor.dtype, "out")
    arrays = {"x": array}
    # How large a concatenation is, only the server knows: that comes as bytes.
    bytes_ = -1 if request.combination == m.Combination.CONCATENATE else len(array.bytes)
    return (yield from _tensor_call(limits, regions, "AddEncoding", request, arrays, "x", into, bytes_))


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
    into = None if out is None else writable(out, request.dtype or None, "out")
    # [B, H, Sq, Sk] in what the server takes for an unset dtype.
    element = request.dtype or (Dtype.FLOAT64 if array.tensor.dtype == Dtype.FLOAT64 else Dtype.FLOAT32)
    scores = math.prod([*array.tensor.shape[:3], *keys.tensor.shape[2:3]]) * ELEMENT_BYTES[element]
    arrays = {"q": array, "k": keys}
    return (yield from _tensor_call(limits, regions, "ScoreRelative", request, arrays, "scores", into, scores))


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
        old_pairing=_enum(m.Pairing, old_pairing, "old_pairing"),
        new_pairing=_enum(m.Pairing, new_pairing, "new_pairing"),
        heads=number("int32", heads, "heads"),
        rotary_dim=number("int32", rotary_dim, "rotary_dim"),
        slice=_enum(m.RotarySlice, slice, "slice"),
    )
    into = None if out is None else writable(out, array.tensor.dtype, "out")
    arrays = {"weight": array}
    bytes_ = len(array.bytes)
    return (yield from _tensor_call(limits, regions, "ConvertPairing", request, arrays, "weight", into, bytes_))


def _given(tensor: Optional[Tensor]) -> Tensor:
    if tensor is None:
        raise PosencError("INTERNAL", "the answer has no tensor")
    return tensor


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
