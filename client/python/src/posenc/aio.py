"""AsyncClient: Client's methods for asyncio."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import grpc
import grpc.aio

from . import messages as m
from . import methods
from .blocking import closed, error_of_call, stuck, too_long
from .channels import LONGEST_STREAM, VERSION, Call, Connections
from .client import CallOptions
from .errors import PosencError
from .options import Options, from_environment
from .shared import SharedRegion
from .sources import places_of, rope_source
from .steps import Steps, Stream, Unary, explained, joined
from .tables import build_table
from .wire import size

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class _Runner:
    """Runs steps (steps.py) in the event loop."""

    def __init__(self, connections: Connections, target: str) -> None:
        self._connections = connections
        self._target = target

    async def run(self, steps: Steps[T], call: Call) -> T:
        steps = explained(steps, VERSION)
        try:
            step: Union[Unary, Stream] = next(steps)
            while True:
                try:
                    answer = await self._answer(step, call)
                except PosencError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except PosencError as error:
            error.request_id = error.request_id or call.request_id or ""
            raise

    async def _unary(self, step: Unary, call: Call) -> bytes:
        connections, sent = self._connections, size(step.pieces)
        if sent > connections.limits.max_message_bytes:
            raise too_long(sent, connections.limits.max_message_bytes, call)
        if connections.closed:
            raise closed(call)
        with connections.of(max(sent, step.expected_bytes), step.once) as connection:
            method = connection.method("unary_unary", step.method)
            try:
                answer: bytes = await method(
                    joined(step), timeout=connections.timeout(call, step), metadata=connections.metadata(call, sent)
                )
            except grpc.RpcError as failed:
                raise error_of_call(failed, self._target, call) from None
            return answer

    async def _answer(self, step: Union[Unary, Stream], call: Call) -> Optional[bytes]:
        if isinstance(step, Unary):
            return await self._unary(step, call)
        await self._stream(step, call)
        return None

    async def _stream(self, step: Stream, call: Call) -> None:
        connections = self._connections
        if connections.closed:
            raise closed(call)
        with connections.of(connections.limits.max_message_bytes) as connection:
            await self._exchange(connection.method("stream_stream", step.method), step, call)

    async def _exchange(self, method: Any, step: Stream, call: Call) -> None:
        """Sends and receives all messages."""
        stream = method(
            timeout=LONGEST_STREAM if call.timeout is None else call.rest(),
            metadata=self._connections.metadata(call, step.announced),
        )
        moved = 0

        async def write() -> None:
            nonlocal moved
            try:
                for pieces in step.messages():
                    await stream.write(b"".join(pieces))
                    moved += 1
                await stream.done_writing()
            except asyncio.InvalidStateError:
                return  # the call has ended, and read() tells how

        async def read() -> None:
            nonlocal moved
            async for answer in stream:
                step.take(answer)
                moved += 1

        both = asyncio.gather(write(), read())
        patience = self._connections.timeout(call) if call.timeout is None else None
        try:
            while True:
                before = moved
                if (await asyncio.wait({both}, timeout=patience))[0]:
                    break
                if moved == before:
                    raise stuck(self._target, patience or 0, call)
            both.result()
        except grpc.RpcError as failed:
            raise error_of_call(failed, self._target, call) from None
        finally:
            both.cancel()
            stream.cancel()
            await asyncio.gather(both, return_exceptions=True)


class AsyncClient:
    """Has Client's methods to be awaited, with the same arguments and results.

        async with posenc.AsyncClient("dns:///posenc:50051") as client:
            q, k = await client.apply_rope(q, k, rope="llama-3.1-8b", positions=0, layout="bshd")

    A client belongs to the event loop of its first call.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: Optional[float] = None,
        tls: bool = False,
        tls_ca: Optional[str] = None,
        tls_cert: Optional[str] = None,
        tls_key: Optional[str] = None,
        tls_server_name: Optional[str] = None,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        max_message_bytes: int = 512 << 20,
        stream_above_bytes: Optional[int] = None,
        bulk_channels: int = 4,
        service_config: Optional[str] = None,
    ) -> None:
        options = Options(
            target=target,
            timeout=timeout,
            tls=tls,
            tls_ca=tls_ca,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_server_name=tls_server_name,
            token=token,
            token_file=token_file,
            max_message_bytes=max_message_bytes,
            stream_above_bytes=stream_above_bytes,
            bulk_channels=bulk_channels,
            service_config=service_config,
        )
        self._connections = Connections(options, grpc.aio)
        self._memory = self._connections.limits, self._connections.regions
        self._runner = _Runner(self._connections, target)

    @classmethod
    def from_env(cls, **options: Any) -> AsyncClient:
        """Makes a client from POSENC_SERVER, POSENC_TLS, POSENC_TLS_CA, ..._CERT,
        ..._KEY, ..._SERVER_NAME, POSENC_TOKEN and POSENC_TOKEN_FILE; `options`
        win."""
        return cls(**{**from_environment(), **options})

    async def close(self) -> None:
        """Ends running calls, and closes the connections."""
        for channel in self._connections.take_all():
            await channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def _run(self, steps: Any, options: CallOptions) -> Any:
        return await self._runner.run(steps, Call(**options))

    async def get_server_info(self, **options: Unpack[CallOptions]) -> m.GetServerInfoResponse:
        return await self._run(methods.get_server_info(), options)  # type: ignore[no-any-return]

    async def shared_region(
        self,
        bytes: int,
        *,
        name: Optional[str] = None,
        directory: Optional[str] = None,
        **options: Unpack[CallOptions],
    ) -> SharedRegion:
        steps = methods.shared_region(self._connections.regions, bytes, name, directory)
        return await self._run(steps, options)  # type: ignore[no-any-return]

    async def resolve(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        compare_with: Any = None,
        profile: Any = None,
        profile_version: Optional[str] = None,
        part: Any = None,
        layer_type: Optional[str] = None,
        layer_index: Optional[int] = None,
        sequence_length: Optional[int] = None,
        length: int = 0,
        **options: Unpack[CallOptions],
    ) -> m.ResolveRopeResponse:
        steps = methods.resolve(
            rope,
            head_dim,
            compare_with,
            length,
            profile=profile,
            profile_version=profile_version,
            part=part,
            layer_type=layer_type,
            layer_index=layer_index,
            sequence_length=sequence_length,
        )
        return await self._run(steps, options)  # type: ignore[no-any-return]

    async def rope(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        profile: Any = None,
        profile_version: Optional[str] = None,
        part: Any = None,
        layer_type: Optional[str] = None,
        layer_index: Optional[int] = None,
        sequence_length: Optional[int] = None,
        **options: Unpack[CallOptions],
    ) -> AsyncRope:
        chosen = {
            "profile": profile,
            "profile_version": profile_version,
            "part": part,
            "layer_type": layer_type,
            "layer_index": layer_index,
        }
        resolved = await self.resolve(rope, head_dim=head_dim, sequence_length=sequence_length, **chosen, **options)
        return AsyncRope(self, resolved, rope_source(rope, sequence_length=sequence_length).sequence_length)

    async def apply_rope(
        self,
        q: Any,
        k: Any = None,
        *,
        rope: Any,
        positions: Any,
        layout: Any,
        direction: Any = None,
        query_scale: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> tuple[Any, Any]:
        steps = methods.apply_rope(
            *self._memory, q, k, rope, positions, layout, direction, query_scale, saturation, out
        )
        return await self._run(steps, options)  # type: ignore[no-any-return]

    async def reposition(
        self,
        k: Any,
        *,
        rope: Any,
        layout: Any,
        new_rope: Any = None,
        old_positions: Any = None,
        new_positions: Any = None,
        shift: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = methods.reposition(
            *self._memory, k, rope, new_rope, old_positions, new_positions, shift, layout, saturation, out
        )
        return await self._run(steps, options)

    async def build_table(
        self,
        *,
        rope: Any = None,
        rows: Optional[int] = None,
        absolute: Any = None,
        positions: Any = None,
        layout: Any = None,
        dtype: Any = None,
        for_keys: bool = False,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = build_table(*self._memory, rope, absolute, rows, positions, layout, dtype, for_keys, out)
        return await self._run(steps, options)

    async def build_bias(
        self,
        bias: Any,
        *,
        query_length: int,
        key_length: int,
        query_start: int = 0,
        key_start: int = 0,
        query_tile: int = 0,
        key_tile: int = 0,
        dtype: Any = None,
        causal: bool = False,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = methods.build_bias(
            bias,
            dtype,
            causal,
            query_length=query_length,
            key_length=key_length,
            query_start=query_start,
            key_start=key_start,
            query_tile=query_tile,
            key_tile=key_tile,
        )
        return await self._run(steps, options)

    async def build_positions(self, scheme: Any, **options: Unpack[CallOptions]) -> m.BuildPositionsResponse:
        return await self._run(methods.build_positions(scheme), options)  # type: ignore[no-any-return]

    async def add_encoding(
        self,
        x: Any,
        *,
        encoding: Any,
        positions: Any = None,
        combination: Any = None,
        x_scale: Optional[float] = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = methods.add_encoding(*self._memory, x, encoding, positions, combination, x_scale, out)
        return await self._run(steps, options)

    async def score_relative(
        self,
        q: Any,
        k: Any,
        *,
        score: Any,
        query_start: int = 0,
        key_start: int = 0,
        dtype: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = methods.score_relative(*self._memory, q, k, score, query_start, key_start, dtype, out)
        return await self._run(steps, options)

    async def convert_pairing(
        self,
        weight: Any,
        *,
        old_pairing: Any,
        new_pairing: Any,
        heads: int,
        rotary_dim: int = 0,
        slice: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        steps = methods.convert_pairing(*self._memory, weight, old_pairing, new_pairing, heads, rotary_dim, slice, out)
        return await self._run(steps, options)

    async def analyze_rope(
        self,
        rope: Any,
        *,
        head_dim: int = 0,
        max_distance: int = 0,
        distance_step: int = 0,
        trained_length: int = 0,
        compare_with: Any = None,
        **options: Unpack[CallOptions],
    ) -> m.AnalyzeRopeResponse:
        steps = methods.analyze_rope(
            rope,
            compare_with,
            head_dim=head_dim,
            max_distance=max_distance,
            distance_step=distance_step,
            trained_length=trained_length,
        )
        return await self._run(steps, options)  # type: ignore[no-any-return]

    async def diagnose_rope(
        self,
        inputs: Any,
        *,
        readers: Any = (),
        length: int = 0,
        runtime: str = "",
        **options: Unpack[CallOptions],
    ) -> m.DiagnoseRopeResponse:
        steps = methods.diagnose_rope(inputs, readers, length, runtime)
        return await self._run(steps, options)  # type: ignore[no-any-return]


class AsyncRope:
    """A rope that was resolved once: await client.rope("config.json")."""

    def __init__(self, client: AsyncClient, resolved: m.ResolveRopeResponse, sequence_length: Optional[int]) -> None:
        self._client = client
        self.resolved = resolved
        self.spec = resolved.spec or m.RopeSpec()
        # Length-dependent scalings need the length in every call.
        self.source = m.RopeSource(spec=self.spec, sequence_length=sequence_length, head_dim=resolved.head_dim)

    async def apply(
        self,
        q: Any,
        k: Any = None,
        *,
        layout: Any,
        start: Any = None,
        positions: Any = None,
        direction: Any = None,
        query_scale: Any = None,
        saturation: Any = None,
        out: Any = None,
        **options: Unpack[CallOptions],
    ) -> tuple[Any, Any]:
        return await self._client.apply_rope(
            q,
            k,
            rope=self.source,
            positions=places_of(start, positions),
            layout=layout,
            direction=direction,
            query_scale=query_scale,
            saturation=saturation,
            out=out,
            **options,
        )

    async def reposition(self, k: Any, *, layout: Any, **arguments: Any) -> Any:
        return await self._client.reposition(k, rope=self.source, layout=layout, **arguments)

    async def table(self, *, rows: Optional[int] = None, **arguments: Any) -> Any:
        return await self._client.build_table(rope=self.source, rows=rows, **arguments)
