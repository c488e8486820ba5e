"""AsyncClient, whose calls are awaited. tools/generate_client.py makes Client from this file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, cast, overload

import grpc.aio

from . import arguments as args
from . import messages as m
from .arrays import Borrowed, DtypeLike, Result, borrow, dtype_of, like
from .blocks import moved
from .channels import VERSION, Call, Channels, ClientOptions, from_environment
from .coerce import message_of, request_of
from .errors import InvalidArgumentError, PosencError, invalid
from .exchange_aio import stream, unary
from .shared import Placed, SharedRegion, refused
from .sources import movement_of, other_source, positions_of, rope_source
from .streams import Joined, Parts, Sent
from .tables import ROW_BYTES, RotaryTable, begin_of, outside, results_of, rows_of
from .wire import Buffer, Message, decode, encode, size

if TYPE_CHECKING:
    from typing_extensions import Unpack

M = TypeVar("M", bound=Message)
# The type of a caller's array; the result has the same type.
A = TypeVar("A")
K = TypeVar("K")

# Seconds that a server may take to report its version, for the text of an error.
_VERSION_TIMEOUT = 2.0


class AsyncClient:
    """A client of one or several servers at `target`.

        async with posenc.AsyncClient("dns:///posenc:50051") as client:
            q, k = await client.apply_rope(q, k, rope="llama-3.1-8b", positions=0, layout="bshd")

    target: "host:port", "dns:///posenc:50051" or "unix:/run/posenc.sock".
    options: ClientOptions.

    Arrays are numpy arrays, torch tensors, or objects with a buffer, DLPack or the array API.
    Results have the kind of the inputs. The constructor never waits for the network. Errors are PosencError.
    Any number of threads may use a client without asyncio at the same time.
    A client with asyncio belongs to the event loop of its first call.
    """

    def __init__(self, target: str, **options: Unpack[ClientOptions]) -> None:
        self._channels = Channels(grpc.aio, target, options)
        self._regions: list[SharedRegion] = []

    @classmethod
    def from_env(cls, **options: Any) -> AsyncClient:
        """Makes a client from environment variables, which `options` override.

        POSENC_SERVER is the target. POSENC_TOKEN and POSENC_TOKEN_FILE give the token.
        POSENC_TLS, POSENC_TLS_CA, POSENC_TLS_CERT, POSENC_TLS_KEY and POSENC_TLS_SERVER_NAME are the TLS options.
        """
        return cls(**{**from_environment(), **options})

    @property
    def target(self) -> str:
        """The server's address, with which a program can make another client."""
        return self._channels.target

    async def close(self) -> None:
        """Ends running calls, and closes the connections and regions."""
        for region in self._regions:
            region.close()
        for channel in self._channels.take_all():
            await channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def get_server_info(self, **options: Unpack[args.CallOptions]) -> m.GetServerInfoResponse:
        """Returns version, instruction set, limits, presets."""
        return await self._ask(m.GetServerInfoRequest(), m.GetServerInfoResponse, Call(**options))

    async def shared_region(
        self, size: int, *, name: Optional[str] = None, directory: Optional[str] = None,
        **options: Unpack[args.CallOptions],
    ) -> SharedRegion:
        """Makes memory that the server also maps. Calls with views of this memory carry no tensors.

            with client.shared_region(q_bytes) as region:
                q = region.array((1, 4096, 32, 128), "float16")
                client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bshd", out=q)

        name: the file's name; by default the server's prefix and random digits.
        directory: the path under which this process sees the server's directory, if it differs from the server's path.
        If the server shares no memory with this client, the calls send bytes.
        The file is removed when the region or the client is closed.
        A call in place is never sent twice. If an error says that q may have been rotated, write q again.
        """
        region = SharedRegion(size, (await self.get_server_info(**options)).shared_memory, name, directory)
        self._regions = [*(known for known in self._regions if known.is_open), region]
        return region

    async def resolve(
        self, rope: args.RopeLike, *, head_dim: int = 0, compare_with: Optional[args.RopeLike] = None, length: int = 0,
        **options: Unpack[args.ResolveOptions],
    ) -> m.ResolveRopeResponse:
        """Returns the complete spec, inv_freq, amplitude and all assumptions of a rope.

        With `compare_with`, the answer also has the difference between the two ropes.
        `length` is the largest distance of this comparison.
        options: CallOptions, and for a configuration or a preset also SourceOptions, such as layer_index or part.
        """
        source: Any = options
        call = Call(**{name: source.pop(name, None) for name in args.CallOptions.__annotations__})
        request = request_of(
            m.ResolveRopeRequest, rope=rope_source(rope, **source), head_dim=head_dim,
            compare_with=other_source(compare_with, "compare_with"), length=length,
        )
        return await self._ask(request, m.ResolveRopeResponse, call)

    async def rope(
        self, rope: args.RopeLike, *, head_dim: int = 0, **options: Unpack[args.ResolveOptions]
    ) -> AsyncRope:
        """Resolves a rope once, for many calls. `options` are the options of resolve()."""
        resolved = await self.resolve(rope, head_dim=head_dim, **options)
        length = rope_source(rope, sequence_length=options.get("sequence_length")).sequence_length
        return AsyncRope(self, resolved, length)

    @overload
    async def apply_rope(
        self, q: A, k: None = None, *, rope: args.RopeLike, positions: args.PositionsLike, layout: m.LayoutLike,
        **options: Unpack[args.RotationOptions],
    ) -> tuple[A, None]: ...

    @overload
    async def apply_rope(
        self, q: A, k: K, *, rope: args.RopeLike, positions: args.PositionsLike, layout: m.LayoutLike,
        **options: Unpack[args.RotationOptions],
    ) -> tuple[A, K]: ...

    async def apply_rope(
        self, q: Any, k: Any = None, *, rope: Optional[args.RopeLike], positions: Optional[args.PositionsLike],
        layout: Optional[m.LayoutLike], direction: Optional[m.DirectionLike] = None,
        query_scale: Optional[args.QueryScale] = None, saturation: Optional[m.SaturationLike] = None,
        out: object = None, **options: Unpack[args.CallOptions],
    ) -> tuple[Any, Any]:
        """Rotates q, k or both: [B, S, H, D] in the order of `layout`, or [T, H, D].

        rope: the name of a preset, the path of a config.json, or the result of client.rope().
            The content of a config.json may be a text, a dict, or a transformers configuration.
            A specification is a dict, such as {"pairing": "half_split", "rope_theta": 500000}.
        positions: an int is the first token's position; an array or a list has one position for each token.
            {"starts": [0, 7]} has the first position of each sequence; posenc.packed(cu_seqlens) is for "thd".
        layout: "bshd", "bhsd", "sbhd" or "thd".
        direction: "inverse" undoes a rotation, and "adjoint" computes the gradient of a rotation.
        saturation: required for FP8. With "finite", results past the largest FP8 number become that number.
            With "none", these results become infinity, or NaN in E4M3.
        out: arrays for the results, (q, k) or one array if only one tensor is given; q and k themselves are allowed.

        Returns (q, k); a tensor that was not given is None.
        """
        request = request_of(
            m.ApplyRopeRequest, rope=rope_source(rope), positions=positions_of(positions), layout=layout,
            direction=direction, query_scale=query_scale, saturation=saturation,
        )
        arrays = {name: borrow(array, name) for name, array in (("q", q), ("k", k)) if array is not None}
        outs = dict(zip("qk", _pair(q, k, out)))
        results = {name: like(array, name, outs[name]) for name, array in arrays.items()}
        await self._tensors(request, arrays, list(results.values()), Call(**options))
        q, k = (results[name].array if name in results else None for name in "qk")
        return q, k

    async def reposition(
        self, k: A, *, rope: Optional[args.RopeLike], layout: Optional[m.LayoutLike] = None,
        cache: Optional[args.Cache] = None, new_rope: Optional[args.RopeLike] = None,
        old_positions: Optional[args.PositionsLike] = None, new_positions: Optional[args.PositionsLike] = None,
        shift: object = None, saturation: Optional[m.SaturationLike] = None,
        block_format: Optional[m.BlockFormatLike] = None, out: object = None, **options: Unpack[args.CallOptions],
    ) -> A:
        """Moves rotated keys to other positions, or from one encoding to another.

        rope: the encoding that rotated k.
        shift: an int, or an int for each token.
        new_positions: the alternative to `shift`. It needs old_positions; both have the forms of apply_rope().
        saturation: required for FP8, as in apply_rope(), and for int8 without block_format ("finite").
        block_format: "q8_0" or "q4_0", if k has llama.cpp's blocks as int8. The last dimension of k counts bytes.
        cache: the layout of a paged cache, such as dict(dimensions="vllm_split", block_table=..., lengths=...).
            A call with `cache` has no `layout`. Only the keys of the sequences in `cache` change.
            If the blocks of these sequences are at most half of the cache, only these blocks are sent.
        """
        request = request_of(
            m.RepositionRequest, old_rope=rope_source(rope), new_rope=other_source(new_rope, "new_rope"),
            movement=movement_of(old_positions, new_positions, shift), layout=layout, cache=cache,
            saturation=saturation, block_format=block_format,
        )
        array, call = borrow(k, "k"), Call(**options)
        result = like(array, "k", out)
        is_shared = any(region.place_of(array.tensor.data) for region in self._regions)
        if not is_shared and (part := moved(request, array)):
            try:
                await self._tensor(part.request, {"k": part.k}, part.result, call)
                part.write(result, array.tensor)
                return cast(A, result.array)
            except InvalidArgumentError:
                pass  # The call with the whole cache fails, too, and its error has the caller's numbers of blocks.
        return cast(A, await self._tensor(request, {"k": array}, result, call))

    @overload
    async def build_table(
        self, *, rope: args.RopeLike, layout: Optional[args.PairLayout] = None, **options: Unpack[args.TableOptions]
    ) -> RotaryTable: ...

    @overload
    async def build_table(
        self, *, rope: args.RopeLike, layout: Literal["complex"], **options: Unpack[args.TableOptions]
    ) -> Any: ...

    @overload
    async def build_table(self, *, absolute: args.Encoding, **options: Unpack[args.TableOptions]) -> Any: ...

    async def build_table(
        self, *, rope: Optional[args.RopeLike] = None, rows: Optional[int] = None,
        absolute: Optional[args.Encoding] = None, positions: Optional[args.PositionsLike] = None,
        layout: Optional[m.TableLayoutLike] = None, dtype: Optional[DtypeLike] = None, for_keys: bool = False,
        out: object = None, **options: Unpack[args.CallOptions],
    ) -> Any:
        """Returns rows of a table: (cos, sin) of a rope, or one array of an absolute encoding.

        positions: as in apply_rope(); by default 0.
        layout: "half" (default), "duplicated", "pair_repeated", or "complex", which is one array.
        dtype: a name, or a dtype of numpy or torch; by default float32. A dtype of torch gives torch tensors.
        out: arrays for the results, (cos, sin) or one array.
        """
        element, wrap = dtype_of(dtype)
        if rope is not None and absolute is not None:
            raise invalid("absolute", "excludes rope")
        request = request_of(
            m.BuildTableRequest, rope=other_source(rope, "rope"), absolute=absolute, rows=rows,
            layout=layout, dtype=element, for_keys=for_keys,
        )
        if positions is None and not (request.absolute and request.absolute.sincos_grid):
            positions = 0
        request.positions = positions_of(positions)
        results = results_of(request, wrap, out)
        # The last argument is the approximate size of the answer: large answers are faster as a stream.
        answer = await self._tensors(request, {}, results, Call(**options), rows_of(request) * ROW_BYTES)
        cos, *sin = [result.array for result in results]
        return RotaryTable(cos, sin[0], answer.amplitude) if sin else cos

    async def build_bias(
        self, bias: args.Bias, *, query_length: int, key_length: int, query_start: int = 0, key_start: int = 0,
        query_tile: int = 0, key_tile: int = 0, dtype: Optional[DtypeLike] = None, causal: bool = False,
        **options: Unpack[args.CallOptions],
    ) -> Any:
        """Returns an attention bias of shape [heads, query_length, key_length].
        An example of `bias` is {"alibi": {"heads": 8}}."""
        element, wrap = dtype_of(dtype)
        request = request_of(
            m.BuildBiasRequest, bias=bias, query_start=query_start, query_length=query_length, key_start=key_start,
            key_length=key_length, query_tile=query_tile, key_tile=key_tile, dtype=element, causal=causal,
        )
        matrix = Result("tile", wrap, None, None)
        begin = request.query_start, request.key_start
        tiles = Parts(
            m.BuildBiasResponse, [matrix], lambda tile, _: [0, tile.query_start - begin[0], tile.key_start - begin[1]]
        )
        await self._stream("BuildBias", [b"".join(encode(request))], tiles.take, Call(**options))
        tiles.done()
        return matrix.array

    async def build_positions(
        self, scheme: args.Scheme, **options: Unpack[args.CallOptions]
    ) -> m.BuildPositionsResponse:
        """Returns the position ids of a scheme, such as {"packed": {"lengths": [3, 5]}}.

        The schemes are "packed", "padded", "context_parallel", "grid", "multimodal", "attention_sinks" and "vision".
        Other calls take the answer's `positions` unchanged.
        """
        request = message_of(m.BuildPositionsRequest, scheme, "scheme")
        return await self._ask(request, m.BuildPositionsResponse, Call(**options))

    async def add_encoding(
        self, x: A, *, encoding: args.Encoding, positions: Optional[args.PositionsLike] = None,
        combination: Optional[m.CombinationLike] = None, x_scale: Optional[float] = None, out: object = None,
        **options: Unpack[args.CallOptions],
    ) -> A:
        """Adds an absolute encoding to x, [B, S, dim], [S, dim] or [T, dim].
        An example of `encoding` is dict(sinusoidal=dict(dim=512, order="interleaved"))."""
        array = borrow(x, "x")
        request = request_of(
            m.AddEncodingRequest, encoding=encoding, positions=positions_of(positions), combination=combination,
            x_scale=x_scale,
        )
        # Only the server knows the shape of a concatenation.
        shape = None if request.combination == m.Combination.CONCATENATE else array.tensor.shape
        result = Result("x", array.wrap, array.tensor.dtype, shape, out)
        return cast(A, await self._tensor(request, {"x": array}, result, Call(**options)))

    async def score_relative(
        self, q: A, k: object, *, score: args.Score, query_start: int = 0, key_start: int = 0,
        dtype: Optional[DtypeLike] = None, out: object = None, **options: Unpack[args.CallOptions],
    ) -> A:
        """Returns the attention scores, [B, H, Sq, Sk], of an encoding that acts inside attention.
        The shapes are [B, H, Sq, D] for q and [B, H, Sk, D] for k. The scores are not divided by sqrt(D)."""
        arrays = {"q": borrow(q, "q"), "k": borrow(k, "k")}
        queries, keys = arrays["q"].tensor, arrays["k"].tensor
        request = request_of(
            m.ScoreRelativeRequest, score=score, query_start=query_start, key_start=key_start, dtype=dtype_of(dtype)[0]
        )
        # The server's default for an unset dtype.
        element = request.dtype or (m.Dtype.FLOAT64 if queries.dtype == m.Dtype.FLOAT64 else m.Dtype.FLOAT32)
        result = Result("scores", arrays["q"].wrap, element, [*queries.shape[:3], *keys.shape[2:3]], out)
        return cast(A, await self._tensor(request, arrays, result, Call(**options)))

    async def convert_pairing(
        self, weight: A, *, old_pairing: m.PairingLike, new_pairing: m.PairingLike, heads: int, rotary_dim: int = 0,
        rotary_slice: Optional[m.RotarySliceLike] = None, out: object = None, **options: Unpack[args.CallOptions],
    ) -> A:
        """Reorders the rows of a projection's weight or bias, [heads * head_dim, ...].
        A checkpoint for one pairing then works with the other pairing."""
        array = borrow(weight, "weight")
        request = request_of(
            m.ConvertPairingRequest, old_pairing=old_pairing, new_pairing=new_pairing, heads=heads,
            rotary_dim=rotary_dim, slice=rotary_slice,
        )
        result = like(array, "weight", out)
        return cast(A, await self._tensor(request, {"weight": array}, result, Call(**options)))

    async def analyze_rope(
        self, rope: args.RopeLike, *, head_dim: int = 0, max_distance: int = 0, distance_step: int = 0,
        trained_length: int = 0, compare_with: Optional[args.RopeLike] = None, **options: Unpack[args.CallOptions],
    ) -> m.AnalyzeRopeResponse:
        """Returns wavelengths, long-term decay and similarity between positions."""
        request = request_of(
            m.AnalyzeRopeRequest, rope=rope_source(rope), head_dim=head_dim, max_distance=max_distance,
            distance_step=distance_step, trained_length=trained_length,
            compare_with=other_source(compare_with, "compare_with"),
        )
        return await self._ask(request, m.AnalyzeRopeResponse, Call(**options))

    async def diagnose_rope(
        self, inputs: args.Inputs, *, readers: Sequence[str] = (), length: int = 0, runtime: str = "",
        **options: Unpack[args.CallOptions],
    ) -> m.DiagnoseRopeResponse:
        """Reads all descriptions of one checkpoint as each reader does.

        Returns the readers that disagree, the distance where the disagreement begins, and the key that corrects it.
        inputs: ModelDescriptions, or dicts of their fields, such as dict(kind="config", text=...).
        readers: names of readers to check, such as "hf" and "vllm". The contract has the names and the default.
        """
        request = request_of(m.DiagnoseRopeRequest, inputs=inputs, readers=readers, length=length, runtime=runtime)
        return await self._ask(request, m.DiagnoseRopeResponse, Call(**options))

    # ---- How the methods call -----------------------------------------------------

    async def _ask(self, request: Message, answer: type[M], call: Call) -> M:
        """Makes a unary call without large tensors."""
        return decode(answer, await self._unary(_method(request), encode(request), call))

    async def _tensor(self, request: Message, inputs: Mapping[str, Borrowed], result: Result, call: Call) -> Any:
        """Makes a call whose answer has one tensor, and returns this tensor."""
        await self._tensors(request, inputs, [result], call)
        return result.array

    async def _tensors(
        self, request: Message, inputs: Mapping[str, Borrowed], results: Sequence[Result], call: Call,
        expected_bytes: int = 0,
    ) -> Any:
        """Makes a call with tensors, fills the results, and returns the answer (None for a stream of a rotation).
        Tensors in shared memory are sent as places.
        If a message would be too large, and the method has a stream, the call uses the stream."""
        method, most = _method(request), self._channels.most
        answer: Any = getattr(m, method + "Response")
        placed = Placed(request, inputs, results, self._regions)
        if placed.has_places and size(pieces := encode(placed.request)) <= most:
            try:
                answer = decode(answer, await self._unary(method, pieces, call, bool(placed.in_place)))
                placed.read(answer)
                return answer
            except PosencError as error:
                if not refused(error) and (placed.in_place or not _too_large(error)):
                    raise placed.explained(error) from None
        tensors: Any = {name: array.tensor for name, array in inputs.items()}
        pieces = encode(dataclasses.replace(request, **tensors))
        has_stream = method in ("ApplyRope", "Reposition", "BuildTable")
        if not has_stream or max(size(pieces), expected_bytes) <= self._channels.stream_above:
            try:
                answer = decode(answer, await self._unary(method, pieces, call))
                for result in results:
                    result.read(answer)
                return answer
            except PosencError as error:
                if not has_stream or not _too_large(error):
                    raise
                # The server's limit is lower than this client's.
                most = min(int(error.metadata.get("limitBytes", 4 << 20)), most)
        if isinstance(request, m.BuildTableRequest):
            rows = Parts(m.BuildTableStreamResponse, results, begin_of(request))
            first = b"".join(encode(m.BuildTableStreamRequest(table=request)))
            try:
                await self._stream("BuildTableStream", [first], rows.take, call)
            except PosencError as error:
                raise outside(error) from error.__cause__
            rows.done()
            return rows.last
        sent = Sent(getattr(m, method + "StreamRequest"), request, inputs, results, most)
        joined = Joined(results)
        await self._stream(method + "Stream", sent, joined.take, call, sent.largest)
        joined.done()
        return None

    async def _unary(self, method: str, pieces: Sequence[Buffer], call: Call, once: bool = False) -> bytes:
        try:
            return await unary(self._channels, method, pieces, call, once)
        except PosencError as error:
            raise await self._explained(error, call) from error.__cause__

    async def _stream(
        self, method: str, sent: Iterable[bytes], take: Callable[[bytes], None], call: Call, announced: int = 0
    ) -> None:
        try:
            await stream(self._channels, method, sent, take, call, announced)
        except PosencError as error:
            raise await self._explained(error, call) from error.__cause__

    async def _explained(self, error: PosencError, call: Call) -> PosencError:
        """Adds the versions of server and client to the error of an unknown method.
        The text of an error with a reason already names the field that the server does not know."""
        error.request_id = error.request_id or call.id
        if error.code != "UNIMPLEMENTED" or error.reason:
            return error
        try:
            info = await unary(self._channels, "GetServerInfo", [], Call(timeout=_VERSION_TIMEOUT))
            server = f"posenc {decode(m.GetServerInfoResponse, info).version or 'of an unknown version'}"
        except PosencError:
            server = "not posenc, or of another version"
        error.text += f"; the server is {server}, this client is posenc {VERSION}: use versions that agree"
        return error


class AsyncRope:
    """A rope that `await client.rope("config.json")` resolved once."""

    def __init__(self, client: AsyncClient, resolved: m.ResolveRopeResponse, sequence_length: Optional[int]) -> None:
        self._client = client
        self.resolved = resolved
        self.spec = resolved.spec or m.RopeSpec()
        # Length-dependent scalings need the length in every call.
        self.source = m.RopeSource(spec=self.spec, sequence_length=sequence_length, head_dim=resolved.head_dim)

    @overload
    async def apply(
        self, q: A, k: None = None, *, layout: m.LayoutLike, start: Optional[int] = None,
        positions: Optional[args.PositionsLike] = None, **options: Unpack[args.RotationOptions],
    ) -> tuple[A, None]: ...

    @overload
    async def apply(
        self, q: A, k: K, *, layout: m.LayoutLike, start: Optional[int] = None,
        positions: Optional[args.PositionsLike] = None, **options: Unpack[args.RotationOptions],
    ) -> tuple[A, K]: ...

    async def apply(
        self, q: Any, k: Any = None, *, layout: Any, start: Any = None, positions: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """Calls Client.apply_rope(). Takes either `start`, the first token's position, or `positions`."""
        if start is not None and positions is not None:
            raise invalid("start", "is given beside positions; must be one of them")
        places = positions if start is None else start
        rotated = await self._client.apply_rope(q, k, rope=self.source, positions=places, layout=layout, **options)
        return cast("tuple[Any, Any]", rotated)

    async def reposition(self, k: A, **options: Unpack[args.RepositionOptions]) -> A:
        """Calls Client.reposition()."""
        return await self._client.reposition(k, rope=self.source, **options)

    @overload
    async def table(
        self, *, layout: Optional[args.PairLayout] = None, **options: Unpack[args.TableOptions]
    ) -> RotaryTable: ...

    @overload
    async def table(self, *, layout: Literal["complex"], **options: Unpack[args.TableOptions]) -> Any: ...

    async def table(self, **options: Any) -> Any:
        """Calls Client.build_table(), and returns (cos, sin)."""
        return await self._client.build_table(rope=self.source, **options)


def _method(request: Message) -> str:
    return type(request).__name__[: -len("Request")]


def _too_large(error: PosencError) -> bool:
    return error.code == "RESOURCE_EXHAUSTED" and error.reason != "OVERLOADED"


def _pair(q: Any, k: Any, out: Any) -> Any:
    """Returns `out` as a pair. `out` may be one array if the call has one tensor."""
    if not isinstance(out, (tuple, list)):
        if out is not None and q is not None and k is not None:
            raise invalid("out", "is one array; must be a pair (q, k), as both are given")
        out = (out, None) if k is None else (None, out)
    if len(out) != 2:
        raise invalid("out", f"has {len(out)} arrays; must be a pair (q, k)")
    for name, array, into in zip("qk", (q, k), out):
        if array is None and into is not None:
            raise invalid(name + "_output", f"is given, but {name} is not; give both or neither")
    return out
