"""Client of posenc: exact positional encodings over gRPC.

    rope = posenc.connect("localhost:50051").rope("config.json")
    q, k = rope.apply(q, k, start=0, layout="bshd")

Client waits for its answers, AsyncClient is for asyncio. Answers and
specifications are messages of the contract; posenc.messages has them.
"""

from .aio import AsyncClient, AsyncRope
from .channels import VERSION as __version__
from .client import CallOptions, Client, Rope, connect
from .errors import PosencError
from .messages import Movement, Positions, RopeSource, RopeSpec
from .shared import SharedRegion
from .sources import packed
from .tables import RotaryTable
from .tensor import Dtype, Tensor

__all__ = [
    "AsyncClient",
    "AsyncRope",
    "CallOptions",
    "Client",
    "Dtype",
    "Movement",
    "PosencError",
    "Positions",
    "Rope",
    "RopeSource",
    "RopeSpec",
    "RotaryTable",
    "SharedRegion",
    "Tensor",
    "__version__",
    "connect",
    "packed",
]
