"""Sends and receives messages in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import grpc

from .channels import LONGEST_STREAM, Call, Channels
from .wire import Buffer


async def unary(channels: Channels, name: str, pieces: Sequence[Buffer], call: Call, once: bool = False) -> bytes:
    """Makes a call with one request and one response."""
    message = channels.joined(pieces)
    method = channels.method("unary_unary", name, once)
    options = {"timeout": call.rest(channels.patience), "metadata": channels.metadata(call, len(message))}
    try:
        answer: bytes = await method(message, **options)
        return answer
    except grpc.RpcError as failed:
        raise channels.error_of(failed, call) from None


async def stream(
    channels: Channels, name: str, messages: Iterable[bytes], take: Callable[[bytes], None], call: Call, announced: int
) -> None:
    """Sends and receives messages at the same time, and calls `take` with every answer."""
    moved = 0
    method = channels.method("stream_stream", name)
    running = method(timeout=call.rest(LONGEST_STREAM), metadata=channels.metadata(call, announced))

    async def write() -> None:
        nonlocal moved
        try:
            for message in messages:
                await running.write(message)
                moved += 1
            await running.done_writing()
        except asyncio.InvalidStateError:
            return  # the call has ended; read() reports why

    async def read() -> None:
        nonlocal moved
        async for answer in running:
            take(answer)
            moved += 1

    both = asyncio.gather(write(), read())
    try:
        while not both.done():
            before = moved
            await asyncio.wait({both}, timeout=channels.patience if call.timeout is None else None)
            if moved == before and not both.done():
                raise channels.stuck()
        both.result()
    except grpc.RpcError as failed:
        raise channels.error_of(failed, call) from None
    finally:
        both.cancel()
        running.cancel()
        await asyncio.gather(both, return_exceptions=True)
