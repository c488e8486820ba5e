"""Client of posenc: exact positional encodings over gRPC.

    rope = posenc.connect("localhost:50051").rope("config.json")
    q, k = rope.apply(q, k, start=0, layout="bshd")

Client blocks until an answer comes. AsyncClient is for asyncio. posenc.messages
has the classes of answers and specifications. Errors are PosencError;
posenc.errors has a subclass for each code.
"""

from .aio import AsyncClient as AsyncClient
from .aio import AsyncRope as AsyncRope
from .arguments import CallOptions as CallOptions
from .channels import VERSION
from .channels import ClientOptions as ClientOptions
from .client import Client as Client
from .client import Rope as Rope
from .errors import DeadlineExceededError as DeadlineExceededError
from .errors import InvalidArgumentError as InvalidArgumentError
from .errors import NotFoundError as NotFoundError
from .errors import OverloadedError as OverloadedError
from .errors import PosencError as PosencError
from .errors import ResourceExhaustedError as ResourceExhaustedError
from .errors import UnavailableError as UnavailableError
from .local_server import local as local
from .messages import Dtype as Dtype
from .messages import Movement as Movement
from .messages import Positions as Positions
from .messages import RopeSource as RopeSource
from .messages import RopeSpec as RopeSpec
from .messages import Tensor as Tensor
from .shared import SharedRegion as SharedRegion
from .sources import packed as packed
from .tables import RotaryTable as RotaryTable

__version__ = VERSION

# Client(target, ...)
connect = Client
