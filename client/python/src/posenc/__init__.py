"""Client of posenc: exact positional encodings over gRPC.

    rope = posenc.connect("localhost:50051").rope("config.json")
    q, k = rope.apply(q, k, start=0, layout="bshd")

Client waits for its answers, AsyncClient is for asyncio. Answers and
specifications are messages of the contract; posenc.messages has them. Errors
are PosencError; posenc.errors has a class for each code.
"""

from .aio import AsyncClient, AsyncRope
from .arguments import CallOptions
from .channels import VERSION as __version__
from .client import Client, Rope
from .errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    PosencError,
    ResourceExhaustedError,
    UnavailableError,
)
from .messages import Movement, Positions, RopeSource, RopeSpec
from .options import ClientOptions
from .shared import SharedRegion
from .sources import packed
from .tables import RotaryTable
from .tensor import Dtype, Tensor

# Client(target, ...)
connect = Client

__all__ = [
    "AsyncClient",
    "AsyncRope",
    "CallOptions",
    "Client",
    "ClientOptions",
    "DeadlineExceededError",
    "Dtype",
    "InvalidArgumentError",
    "Movement",
    "NotFoundError",
    "OverloadedError",
    "PosencError",
    "Positions",
    "ResourceExhaustedError",
    "Rope",
    "RopeSource",
    "RopeSpec",
    "RotaryTable",
    "SharedRegion",
    "Tensor",
    "UnavailableError",
    "__version__",
    "connect",
    "packed",
]
