"""Client, whose calls wait for their answers. Made from aio.py by tools/generate_client.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union, cast, overload

import grpc

from . import messages as m
from .arrays import DtypeLike, Result, borrow, dtype_of
from .channels import VERSION, Call, CallOptions, Channels
from .coerce import coerce, message_of, number, optional_enum
from .errors import PosencError, invalid
from .exchange import stream, unary
from .options import ClientOptions, Options, from_environment
from .shared import SharedRegion
from .sources import PositionsLike, RopeLike, SourceOptions, movement_of, places_of, positions_of, rope_source
from .streams import Boxes, Joined, Sent
from .tables import ROW_BYTES, RotaryTable, Rows, outside, results_of, rows_axis, rows_of
from .tensor import Dtype
from .tensor_call import TensorCall, refused, too_large
from .wire import Buffer, Message, decode, encode, size

if TYPE_CHECKING:
    from typing_extensions import Unpack

M = TypeVar("M", bound=Message)
# A caller's array; the result is of the same kind.
A = TypeVar("A")
K = TypeVar("K")

# A message, or a dict of its fields.
QueryScale = Union[m.QueryScale, Mapping[str, object]]
Scheme = Union[m.BuildPositionsRequest, Mapping[str, object]]
Inputs = Iterable[Union[m.ModelDescription, Mapping[str, object]]]
PairLayout = Literal["half", "duplicated", "pair_repeated"]

# Seconds that a server may take to report its version, for the text of an error.
_VERSION_TIMEOUT = 2.0


class ResolveOptions(CallOptions, SourceOptions, total=False):
    """What Client.rope() takes by keyword."""


class RotationOptions(CallOptions, total=False):
    """What apply_rope() and Rope.apply() take by keyword beside the positions."""

    direction: Optional[m.DirectionLike]
    query_scale: Optional[QueryScale]
    saturation: Optional[m.SaturationLike]
    out: object


class RepositionOptions(CallOptions, total=False):
    """What reposition() takes by keyword beside rope and layout."""

    new_rope: Optional[RopeLike]
    old_positions: Optional[PositionsLike]
    new_positions: Optional[PositionsLike]
    shift: object
    saturation: Optional[m.SaturationLike]
    out: object


class TableOptions(CallOptions, total=False):
    """What build_table() and Rope.table() take by keyword beside rope and layout."""

    rows: Optional[int]
    positions: Optional[PositionsLike]
    dtype: Optional[DtypeLike]
    for_keys: bool
    out: object


class Client:
    """A client of one or several servers at `target`.

        with posenc.Client("dns:///posenc:50051") as client:
            q, k = client.apply_rope(q, k, rope="llama-3.1-8b", positions=0, layout="bshd")

    target: "host:port", "dns:///posenc:50051" or "unix:/run/posenc.sock".
    options: ClientOptions.

    Arrays are numpy's, torch's or of any library with a buffer, DLPack or the
    array API; results are of the same kind. The constructor never waits for the
    network. A Client is safe for any number of threads; an Client belongs
    to the event loop of its first call. Errors are PosencError.
    """

    def __init__(self, target: str, **options: Unpack[ClientOptions]) -> None:
        self._channels = Channels(Options(target, **options), grpc)
        self._regions: list[SharedRegion] = []

    @classmethod
    def from_env(cls, **options: Any) -> Client:
        """Makes a client from POSENC_SERVER, POSENC_TLS, POSENC_TLS_CA, ..._CERT, ..._KEY, ..._SERVER_NAME,
        POSENC_TOKEN and POSENC_TOKEN_FILE; `options` win."""
        return cls(**{**from_environment(), **options})

    def close(self) -> None:
        """Ends running calls, and closes the connections and regions."""
        for region in self._regions:
            region.close()
        for channel in self._channels.take_all():
            channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def get_server_info(self, **options: Unpack[CallOptions]) -> m.GetServerInfoResponse:
        """Returns version, instruction set, limits, presets."""
        return self._ask(m.GetServerInfoRequest(), m.GetServerInfoResponse, Call(**options))

    def shared_region(
        self, size: int, *, name: Optional[str] = None, directory: Optional[str] = None, **options: Unpack[CallOptions]
    ) -> SharedRegion:
        """Makes memory that the server maps, too: calls with views of it carry no tensors.

            with client.shared_region(q_bytes) as region:
                q = region.array((1, 4096, 32, 128), "float16")
                client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bshd", out=q)

        name: of the file; by default the server's prefix and random digits.
        directory: this process's path of the server's directory, if it differs.
        If the server shares no memory with this client, the calls send bytes.
        The file is removed when the region or the client is closed. A call in
        place is never sent twice: after an error that says so, write q again.
        """
        server = self.get_server_info(**options)
        region = SharedRegion(size, server.shared_memory, name, directory)
        self._regions = [*(known for known in self._regions if known.is_open), region]
        return region

    def resolve(
        self,
        rope: RopeLike,
        *,
        head_dim: int = 0,
        compare_with: Optional[RopeLike] = None,
        length: int = 0,
        **options: Unpack[ResolveOptions],
    ) -> m.ResolveRopeResponse:
        """Returns what a preset, a config.json or a specification means: the complete spec, inv_freq, amplitude,
        and every assumption by name. With `compare_with` also how the two differ, in scores up to distance
        `length`."""
        call, source = _split(options)
        request = m.ResolveRopeRequest(
            rope=rope_source(rope, **source),
            head_dim=number("int32", head_dim, "head_dim"),
            compare_with=None if compare_with is None else rope_source(compare_with, "compare_with"),
            length=number("int64", length, "length"),
        )
        return self._ask(request, m.ResolveRopeResponse, call)

    def rope(self, rope: RopeLike, *, head_dim: int = 0, **options: Unpack[ResolveOptions]) -> Rope:
        """Resolves a rope once, for many calls."""
        resolved = self.resolve(rope, head_dim=head_dim, **options)
        length = rope_source(rope, sequence_length=options.get("sequence_length")).sequence_length
        return Rope(self, resolved, length)

    @overload
    def apply_rope(
        self,
        q: A,
        k: None = None,
        *,
        rope: RopeLike,
        positions: PositionsLike,
        layout: m.LayoutLike,
        **options: Unpack[RotationOptions],
    ) -> tuple[A, None]: ...

    @overload
    def apply_rope(
        self,
        q: A,
        k: K,
        *,
        rope: RopeLike,
        positions: PositionsLike,
        layout: m.LayoutLike,
        **options: Unpack[RotationOptions],
    ) -> tuple[A, K]: ...

    def apply_rope(
        self,
        q: Any,
        k: Any = None,
        *,
        rope: Optional[RopeLike],
        positions: Optional[PositionsLike],
        layout: Optional[m.LayoutLike],
        direction: Optional[m.DirectionLike] = None,
        query_scale: Optional[QueryScale] = None,
        saturation: Optional[m.SaturationLike] = None,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> tuple[Any, Any]:
        """Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D].

        rope: a preset's name, a path, a dict or text of a config.json, a dict of
            a specification ({"pairing": "half_split", "rope_theta": 500000}), a
            transformers configuration, or a result of client.rope().
        positions: an int is the first token's position; an array or a list has
            one for each token; {"starts": [0, 7]} has each sequence's first,
            and posenc.packed(cu_seqlens) is for "thd".
        layout: "bshd", "bhsd", "sbhd" or "thd".
        direction: "inverse" undoes a rotation, "adjoint" is its gradient.
        saturation: needed for FP8. Results past its largest number become that
            number ("finite"), or infinity ("none"; in E4M3 NaN).
        out: the results' memory, (q, k), or one array; may be q and k themselves.

        Returns (q, k); a tensor that was not given is None.
        """
        request = m.ApplyRopeRequest(
            rope=rope_source(rope),
            positions=positions_of(positions),
            layout=optional_enum(m.Layout, layout, "layout"),
            direction=optional_enum(m.Direction, direction, "direction"),
            query_scale=None if query_scale is None else message_of(m.QueryScale, query_scale, "query_scale"),
            saturation=optional_enum(m.Saturation, saturation, "saturation"),
        )
        arrays, outs = {"q": q, "k": k}, dict(zip("qk", _pair(q, k, out)))
        rotated = self._rotate(request, m.ApplyRopeResponse, arrays, outs, Call(**options))
        return rotated.get("q"), rotated.get("k")

    def reposition(
        self,
        k: A,
        *,
        rope: Optional[RopeLike],
        layout: Optional[m.LayoutLike],
        new_rope: Optional[RopeLike] = None,
        old_positions: Optional[PositionsLike] = None,
        new_positions: Optional[PositionsLike] = None,
        shift: object = None,
        saturation: Optional[m.SaturationLike] = None,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> A:
        """Moves rotated keys to other positions, or from one encoding to another.

        Takes either `shift` (an int, or one for each token), or old_positions
        and new_positions, as in apply_rope. rope: the encoding that rotated k.
        FP8 needs `saturation`, as in apply_rope.
        """
        request = m.RepositionRequest(
            old_rope=rope_source(rope, "rope"),
            new_rope=None if new_rope is None else rope_source(new_rope, "new_rope"),
            movement=movement_of(old_positions, new_positions, shift),
            layout=optional_enum(m.Layout, layout, "layout"),
            saturation=optional_enum(m.Saturation, saturation, "saturation"),
        )
        rotated = self._rotate(request, m.RepositionResponse, {"k": k}, {"k": out}, Call(**options))
        return cast(A, rotated.get("k"))

    @overload
    def build_table(
        self, *, rope: RopeLike, layout: Optional[PairLayout] = None, **options: Unpack[TableOptions]
    ) -> RotaryTable: ...

    @overload
    def build_table(
        self, *, rope: RopeLike, layout: Literal["complex"], **options: Unpack[TableOptions]
    ) -> Any: ...

    @overload
    def build_table(
        self, *, absolute: Union[m.AbsoluteEncoding, Mapping[str, object]], **options: Unpack[TableOptions]
    ) -> Any: ...

    def build_table(
        self,
        *,
        rope: Optional[RopeLike] = None,
        rows: Optional[int] = None,
        absolute: Union[m.AbsoluteEncoding, Mapping[str, object], None] = None,
        positions: Optional[PositionsLike] = None,
        layout: Optional[m.TableLayoutLike] = None,
        dtype: Optional[DtypeLike] = None,
        for_keys: bool = False,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Returns rows of a table: (cos, sin) of a rope, or one array of an absolute encoding.

        positions: by default 0. layout: "half" (default), "duplicated",
        "pair_repeated", or "complex", which is one array. dtype: a name,
        numpy's dtype or torch's, by default float32; torch's gives tensors of
        torch.
        out: the results' memory: (cos, sin), or the one array.
        """
        element, wrap = dtype_of(dtype)
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
            layout=optional_enum(m.TableLayout, layout, "layout"),
            dtype=element,
            for_keys=coerce("bool", for_keys, "for_keys"),
        )
        asked = TensorCall(request, m.BuildTableResponse, {}, results_of(request, wrap, out))
        # Approximate size of the answer. Large answers are faster as a stream.
        answer, arrays = self._tensors(asked, Call(**options), rows_of(request) * ROW_BYTES)
        return arrays["table"] if "table" in arrays else RotaryTable(arrays["cos"], arrays["sin"], answer.amplitude)

    def build_bias(
        self,
        bias: Union[m.Bias, Mapping[str, object]],
        *,
        query_length: int,
        key_length: int,
        query_start: int = 0,
        key_start: int = 0,
        query_tile: int = 0,
        key_tile: int = 0,
        dtype: Optional[DtypeLike] = None,
        causal: bool = False,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Returns an attention bias, [heads, query_length, key_length]: {"alibi": {"heads": 8}}."""
        element, wrap = dtype_of(dtype)
        request = m.BuildBiasRequest(
            bias=message_of(m.Bias, bias, "bias"),
            query_start=number("int64", query_start, "query_start"),
            query_length=number("int64", query_length, "query_length"),
            key_start=number("int64", key_start, "key_start"),
            key_length=number("int64", key_length, "key_length"),
            query_tile=number("int64", query_tile, "query_tile"),
            key_tile=number("int64", key_tile, "key_tile"),
            dtype=element,
            causal=coerce("bool", causal, "causal"),
        )
        matrix = Boxes(Result("bias", wrap, None, None))

        def take(data: Buffer) -> None:
            answer = decode(m.BuildBiasResponse, data)
            begin = [0, answer.query_start - request.query_start, answer.key_start - request.key_start]
            matrix.put(answer, "tile", answer.whole_shape, begin)

        self._stream("BuildBias", [b"".join(encode(request))], take, Call(**options))
        return matrix.array()

    def build_positions(self, scheme: Scheme, **options: Unpack[CallOptions]) -> m.BuildPositionsResponse:
        """Returns position ids for {"packed": {"lengths": [3, 5]}}, or "padded", "context_parallel", "grid",
        "multimodal", "attention_sinks", "vision".

        Pass the answer's `positions` to other calls unchanged.
        """
        request = message_of(m.BuildPositionsRequest, scheme, "scheme")
        return self._ask(request, m.BuildPositionsResponse, Call(**options))

    def add_encoding(
        self,
        x: A,
        *,
        encoding: Union[m.AbsoluteEncoding, Mapping[str, object]],
        positions: Optional[PositionsLike] = None,
        combination: Optional[m.CombinationLike] = None,
        x_scale: Optional[float] = None,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> A:
        """Adds an absolute encoding to x, [B, S, dim], [S, dim] or [T, dim]:
        {"sinusoidal": {"dim": 512, "order": "interleaved"}}."""
        array = borrow(x, "x")
        request = m.AddEncodingRequest(
            encoding=message_of(m.AbsoluteEncoding, encoding, "encoding"),
            positions=positions_of(positions),
            combination=optional_enum(m.Combination, combination, "combination"),
            x_scale=None if x_scale is None else number("double", x_scale, "x_scale"),
        )
        # Only the server knows the size of a concatenation.
        shape = None if request.combination == m.Combination.CONCATENATE else array.tensor.shape
        result = Result("x", array.wrap, array.tensor.dtype, shape, out)
        return cast(A, self._single(request, m.AddEncodingResponse, {"x": array}, result, Call(**options)))

    def score_relative(
        self,
        q: A,
        k: object,
        *,
        score: Union[m.RelativeScore, Mapping[str, object]],
        query_start: int = 0,
        key_start: int = 0,
        dtype: Optional[DtypeLike] = None,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> A:
        """Returns attention scores of encodings that act inside attention: q [B, H, Sq, D] and k [B, H, Sk, D]
        give [B, H, Sq, Sk], not divided by sqrt(D)."""
        arrays = {"q": borrow(q, "q"), "k": borrow(k, "k")}
        queries, keys = arrays["q"].tensor, arrays["k"].tensor
        request = m.ScoreRelativeRequest(
            score=message_of(m.RelativeScore, score, "score"),
            query_start=number("int64", query_start, "query_start"),
            key_start=number("int64", key_start, "key_start"),
            dtype=dtype_of(dtype)[0],
        )
        # The server's default for an unset dtype.
        element = request.dtype or (Dtype.FLOAT64 if queries.dtype == Dtype.FLOAT64 else Dtype.FLOAT32)
        result = Result("scores", arrays["q"].wrap, element, [*queries.shape[:3], *keys.shape[2:3]], out)
        return cast(A, self._single(request, m.ScoreRelativeResponse, arrays, result, Call(**options)))

    def convert_pairing(
        self,
        weight: A,
        *,
        old_pairing: m.PairingLike,
        new_pairing: m.PairingLike,
        heads: int,
        rotary_dim: int = 0,
        rotary_slice: Optional[m.RotarySliceLike] = None,
        out: object = None,
        **options: Unpack[CallOptions],
    ) -> A:
        """Reorders the rows of a projection's weight or bias, [heads * head_dim, ...], so that a checkpoint for
        one pairing works with the other."""
        array = borrow(weight, "weight")
        request = m.ConvertPairingRequest(
            old_pairing=optional_enum(m.Pairing, old_pairing, "old_pairing"),
            new_pairing=optional_enum(m.Pairing, new_pairing, "new_pairing"),
            heads=number("int32", heads, "heads"),
            rotary_dim=number("int32", rotary_dim, "rotary_dim"),
            slice=optional_enum(m.RotarySlice, rotary_slice, "rotary_slice"),
        )
        result = Result("weight", array.wrap, array.tensor.dtype, array.tensor.shape, out)
        answer = self._single(request, m.ConvertPairingResponse, {"weight": array}, result, Call(**options))
        return cast(A, answer)

    def analyze_rope(
        self,
        rope: RopeLike,
        *,
        head_dim: int = 0,
        max_distance: int = 0,
        distance_step: int = 0,
        trained_length: int = 0,
        compare_with: Optional[RopeLike] = None,
        **options: Unpack[CallOptions],
    ) -> m.AnalyzeRopeResponse:
        """Returns wavelengths, long-term decay and similarity between positions."""
        request = m.AnalyzeRopeRequest(
            rope=rope_source(rope),
            head_dim=number("int64", head_dim, "head_dim"),
            max_distance=number("int64", max_distance, "max_distance"),
            distance_step=number("int64", distance_step, "distance_step"),
            trained_length=number("int64", trained_length, "trained_length"),
            compare_with=None if compare_with is None else rope_source(compare_with, "compare_with"),
        )
        return self._ask(request, m.AnalyzeRopeResponse, Call(**options))

    def diagnose_rope(
        self,
        inputs: Inputs,
        *,
        readers: Sequence[str] = (),
        length: int = 0,
        runtime: str = "",
        **options: Unpack[CallOptions],
    ) -> m.DiagnoseRopeResponse:
        """Reads all descriptions of one checkpoint as each of its readers does, and says which readers disagree,
        from which distance on, and which key fixes it.

        inputs: ModelDescriptions, or dicts of their fields: {"kind": "config",
        "text": ...}. readers: readers to check ("hf", "vllm"); by default all.
        """
        given = {"inputs": inputs, "readers": readers, "length": length, "runtime": runtime}
        request = message_of(m.DiagnoseRopeRequest, given, "request")
        return self._ask(request, m.DiagnoseRopeResponse, Call(**options))

    # ---- How the methods call -----------------------------------------------------

    def _ask(self, request: Message, answer: type[M], call: Call) -> M:
        """Makes a unary call without large tensors."""
        return decode(answer, self._unary(_method(request), encode(request), call))

    def _rotate(
        self, request: Message, answer: type[Message], arrays: dict[str, Any], outs: dict[str, Any], call: Call
    ) -> dict[str, Any]:
        inputs = {name: borrow(array, name) for name, array in arrays.items() if array is not None}
        results = tuple(
            Result(name, array.wrap, array.tensor.dtype, array.tensor.shape, outs[name])
            for name, array in inputs.items()
        )
        _, rotated = self._tensors(TensorCall(request, answer, inputs, results), call)
        return rotated

    def _single(
        self, request: Message, answer: type[Message], inputs: dict[str, Any], result: Result, call: Call
    ) -> Any:
        _, arrays = self._tensors(TensorCall(request, answer, inputs, (result,)), call)
        return arrays[result.name]

    def _tensors(self, asked: TensorCall, call: Call, expected_bytes: int = 0) -> tuple[Any, dict[str, Any]]:
        """Makes a call with tensors: with their places if they lie in shared memory, and as a stream if there is
        one and a message would be too large. Returns the answer, and its tensors as arrays."""
        method, most = _method(asked.request), self._channels.most
        placed = asked.in_memory(self._regions)
        if placed.names_places and size(encode(placed.request)) <= most:
            try:
                return placed.read(self._unary(method, encode(placed.request), call, bool(placed.in_place)))
            except PosencError as error:
                if not refused(error) and (placed.in_place or not too_large(error)):
                    raise placed.explained(error) from None
        pieces = encode(asked.with_bytes())
        has_stream = method in ("ApplyRope", "Reposition", "BuildTable")
        if not has_stream or max(size(pieces), expected_bytes) <= self._channels.stream_above:
            try:
                return asked.read(self._unary(method, pieces, call))
            except PosencError as error:
                if not has_stream or not too_large(error):
                    raise
                # The server's limit is lower than ours.
                most = min(int(error.metadata.get("limitBytes", 4 << 20)), most)
        if isinstance(asked.request, m.BuildTableRequest):
            return self._table_rows(asked.request, asked.results, call)
        sent = Sent.of(getattr(m, method + "StreamRequest"), asked.with_bytes(), list(asked.inputs), most)
        joined = Joined(asked.results)
        self._stream(method + "Stream", sent.messages(), joined.take, call, sent.largest)
        return None, dict(zip(asked.inputs, joined.arrays()))

    def _table_rows(
        self, request: m.BuildTableRequest, results: Sequence[Result], call: Call
    ) -> tuple[Any, dict[str, Any]]:
        rows = Rows(results, rows_axis(request))
        first = b"".join(encode(m.BuildTableStreamRequest(table=request)))
        try:
            self._stream("BuildTableStream", [first], rows.take, call)
        except PosencError as error:
            raise outside(error) from error.__cause__
        return rows.read()

    def _unary(self, method: str, pieces: Sequence[Buffer], call: Call, once: bool = False) -> bytes:
        try:
            return unary(self._channels, method, pieces, call, once)
        except PosencError as error:
            raise self._explained(error, call) from error.__cause__

    def _stream(
        self, method: str, sent: Iterable[bytes], take: Callable[[bytes], None], call: Call, announced: int = 0
    ) -> None:
        try:
            stream(self._channels, method, sent, take, call, announced)
        except PosencError as error:
            raise self._explained(error, call) from error.__cause__

    def _explained(self, error: PosencError, call: Call) -> PosencError:
        """Adds both versions to an UNIMPLEMENTED. With a reason, the server has already said what it does not
        know."""
        error.request_id = error.request_id or call.request_id or ""
        if error.code != "UNIMPLEMENTED" or error.reason:
            return error
        try:
            info = unary(self._channels, "GetServerInfo", [], Call(timeout=_VERSION_TIMEOUT))
            server = f"posenc {decode(m.GetServerInfoResponse, info).version or 'of an unknown version'}"
        except PosencError:
            server = "not posenc, or of another version"
        versions = f"the server is {server}, this client is posenc {VERSION}: use versions that agree"
        return error.with_text(f"{error}; {versions}")


class Rope:
    """A rope that was resolved once: client.rope("config.json")."""

    def __init__(self, client: Client, resolved: m.ResolveRopeResponse, sequence_length: Optional[int]) -> None:
        self._client = client
        self.resolved = resolved
        self.spec = resolved.spec or m.RopeSpec()
        # Length-dependent scalings need the length in every call.
        self.source = m.RopeSource(spec=self.spec, sequence_length=sequence_length, head_dim=resolved.head_dim)

    @overload
    def apply(
        self,
        q: A,
        k: None = None,
        *,
        layout: m.LayoutLike,
        start: Optional[int] = None,
        positions: Optional[PositionsLike] = None,
        **options: Unpack[RotationOptions],
    ) -> tuple[A, None]: ...

    @overload
    def apply(
        self,
        q: A,
        k: K,
        *,
        layout: m.LayoutLike,
        start: Optional[int] = None,
        positions: Optional[PositionsLike] = None,
        **options: Unpack[RotationOptions],
    ) -> tuple[A, K]: ...

    def apply(
        self, q: Any, k: Any = None, *, layout: Any, start: Any = None, positions: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """Calls Client.apply_rope(). Takes either `start`, the first token's position, or `positions`."""
        places = places_of(start, positions)
        rotated: tuple[Any, Any] = self._client.apply_rope(
            q, k, rope=self.source, positions=places, layout=layout, **options
        )
        return rotated

    def reposition(self, k: A, *, layout: m.LayoutLike, **options: Unpack[RepositionOptions]) -> A:
        """Calls Client.reposition()."""
        return self._client.reposition(k, rope=self.source, layout=layout, **options)

    @overload
    def table(self, *, layout: Optional[PairLayout] = None, **options: Unpack[TableOptions]) -> RotaryTable: ...

    @overload
    def table(self, *, layout: Literal["complex"], **options: Unpack[TableOptions]) -> Any: ...

    def table(self, **options: Any) -> Any:
        """Calls Client.build_table(), and returns (cos, sin)."""
        return self._client.build_table(rope=self.source, **options)


def _method(request: Message) -> str:
    return type(request).__name__[: -len("Request")]


def _split(options: Mapping[str, Any]) -> tuple[Call, dict[str, Any]]:
    """Returns a call's options, and all others."""
    own = CallOptions.__annotations__
    call = Call(**{name: value for name, value in options.items() if name in own})
    return call, {name: value for name, value in options.items() if name not in own}


def _pair(q: Any, k: Any, out: Any) -> tuple[Any, Any]:
    """Returns `out` as a pair; it may be one array if the call has one tensor."""
    if out is None:
        return None, None
    pair = out if isinstance(out, (tuple, list)) else (out, None) if k is None else (None, out)
    if pair is not out and q is not None and k is not None:
        raise invalid("out", "is one array; must be a pair (q, k), as both are given")
    if len(pair) != 2:
        raise invalid("out", f"has {len(pair)} arrays; must be a pair (q, k)")
    for name, array, into in (("q", q, pair[0]), ("k", k, pair[1])):
        if array is None and into is not None:
            raise invalid(name + "_output", f"is given, but {name} is not; give both or neither")
    return pair[0], pair[1]
