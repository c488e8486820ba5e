"""The types that callers see. Only mypy reads this file (test_contract.py). Each line with "type: ignore" must be
an error."""

import numpy
import posenc
from numpy.typing import NDArray
from typing_extensions import assert_type

Floats = NDArray[numpy.float32]


def blocking(client: posenc.Client, q: Floats, k: memoryview) -> None:
    one = client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bshd")
    assert_type(one, tuple[Floats, None])
    both = client.apply_rope(q, k, rope={"pairing": "half_split"}, positions=[1, 2], layout="thd", direction="inverse")
    assert_type(both, tuple[Floats, memoryview])
    assert_type(client.rope("config.json").apply(q, k, start=0, layout="sbhd"), tuple[Floats, memoryview])
    assert_type(client.reposition(k, rope="llama-3.1-8b", shift=1, layout="bhsd"), memoryview)
    assert_type(client.build_table(rope="llama-3.1-8b", rows=3, dtype="float16"), posenc.RotaryTable)
    client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bdsh")  # type: ignore[call-overload]
    client.rope("llama-3.1-8b", profile="hg")  # type: ignore[arg-type]
    client.resolve(7)  # type: ignore[arg-type]
    posenc.Client("localhost", time_out=1)  # type: ignore[call-arg]


async def asynchronous(client: posenc.AsyncClient, q: Floats) -> None:
    assert_type(await client.apply_rope(q, rope="llama-3.1-8b", positions=0, layout="bshd"), tuple[Floats, None])
    assert_type(await client.convert_pairing(q, old_pairing="half_split", new_pairing="interleaved", heads=1), Floats)
