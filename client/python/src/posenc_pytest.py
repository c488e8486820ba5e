"""The pytest fixture posenc_client. This module is not in the package posenc, because pytest imports the module
at every start, and posenc imports grpc."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import posenc


@pytest.fixture(scope="session")
def posenc_client() -> Iterator[posenc.Client]:
    """A client of a server that posenc.local() starts for the session."""
    import posenc

    with posenc.local() as client:
        yield client
