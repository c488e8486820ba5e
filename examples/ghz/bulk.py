"""Writes the configuration of a load test with tensors of 1 MiB, in base64 for
ghz."""

import base64
import json

TOKENS, HEADS, HEAD_DIM = 64, 32, 128
data = bytes(TOKENS * HEADS * HEAD_DIM * 4)

print(json.dumps({
    "call": "posenc.v1.PositionalEncodingService.ApplyRope",
    "insecure": True,
    "total": 50,
    "concurrency": 4,
    "connections": 4,
    "timeout": "10s",
    # An upper bound: the tensor, and 1 KiB for all other fields.
    "metadata": {"posenc-message-bytes": str(len(data) + 1024)},
    "data": {
        "rope": {"preset": "llama-3.1-8b"},
        "positions": {"start": 0},
        "layout": "LAYOUT_BSHD",
        "q": {"dtype": "DTYPE_FLOAT32", "shape": [1, TOKENS, HEADS, HEAD_DIM],
              "data": base64.b64encode(data).decode()},
    },
}))
