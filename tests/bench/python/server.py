"""ApplyRope as one would write it with grpc.aio and numpy: a baseline of the
benchmark. float32, half-split pairs, BSHD, positions from a start; nothing
else.

server.py UNIX_PATH READY_FILE
"""

import asyncio
import os
import sys

import grpc
import numpy as np

from posenc.v1 import rope_pb2, service_pb2, service_pb2_grpc, tensor_pb2


def rotate(x, start, theta):
    """Rotates x [B, S, H, D] out of place."""
    tokens, dim = x.shape[1], x.shape[3]
    frequencies = theta ** (-np.arange(0, dim, 2) / dim)
    angles = np.outer(np.arange(start, start + tokens), frequencies)
    cos = np.cos(angles).astype(np.float32)[None, :, None, :]
    sin = np.sin(angles).astype(np.float32)[None, :, None, :]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Baseline(service_pb2_grpc.PositionalEncodingServiceServicer):
    async def ApplyRope(self, request, context):
        spec, q = request.rope.spec, request.q
        if (
            request.positions.WhichOneof("kind") != "start"
            or spec.pairing != rope_pb2.PAIRING_HALF_SPLIT
            or q.dtype != tensor_pb2.DTYPE_FLOAT32
            or len(q.shape) != 4
        ):
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "not the benchmark's call"
            )
        theta = spec.rope_theta if spec.HasField("rope_theta") else 10000.0
        x = np.frombuffer(q.data, dtype="<f4").reshape(q.shape)
        y = rotate(x, request.positions.start, theta)
        return service_pb2.ApplyRopeResponse(
            q=tensor_pb2.Tensor(dtype=q.dtype, shape=q.shape, data=y.tobytes())
        )


async def main(path, ready):
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
    )
    service_pb2_grpc.add_PositionalEncodingServiceServicer_to_server(
        Baseline(), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    with open(ready + ".new", "w") as file:
        file.write(f"127.0.0.1:{port}\nunix:{path}\n")
    os.rename(ready + ".new", ready)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
