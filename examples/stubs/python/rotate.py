"""Rotates q with only generated code. rotate.py ADDRESS

    pip install grpcio grpcio-tools numpy
    python -m grpc_tools.protoc -I proto --python_out=gen --grpc_python_out=gen proto/posenc/v1/*.proto
    PYTHONPATH=gen python rotate.py localhost:50051
"""

import sys

import grpc
import numpy as np
from posenc.v1 import rope_pb2, service_pb2, service_pb2_grpc
from posenc.v1 import tensor_pb2 as t

LIMIT = 512 << 20  # the server's default

channel = grpc.insecure_channel(sys.argv[1], options=[
    ("grpc.max_receive_message_length", LIMIT),  # the default is 4 MiB
    ("grpc.max_send_message_length", LIMIT)])
posenc = service_pb2_grpc.PositionalEncodingServiceStub(channel)

q = np.ones((1, 1024, 32, 128), np.float32)  # 16 MiB, little-endian, row-major
request = service_pb2.ApplyRopeRequest(
    rope=rope_pb2.RopeSource(preset="llama-3.1-8b"),
    positions=t.Positions(start=0), layout=t.LAYOUT_BSHD,
    q=t.Tensor(dtype=t.DTYPE_FLOAT32, shape=q.shape, data=q.tobytes()))
answer = posenc.ApplyRope(
    request, timeout=30,
    metadata=[("posenc-message-bytes", str(request.ByteSize()))])
rotated = np.frombuffer(answer.q.data, np.float32).reshape(answer.q.shape)
print(f"{rotated.nbytes} bytes, rotated; at position 0 {rotated[0, 0, 0, 0]:g}, "
      f"at position 1 {rotated[0, 1, 0, 0]:.6f}")
