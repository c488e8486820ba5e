"""Keys that are integers (DTYPE_INT8 and BlockFormat of tensor.proto)."""

import struct

from exact import mp, mpf, nearest

BLOCKS = {"BLOCK_FORMAT_Q8_0": 34, "BLOCK_FORMAT_Q4_0": 18}
CHANNELS = 32

# The server rounds float32 numbers, which have errors of up to 10 * 2^-24 times 180 (the largest magnitude of a pair).
# So no result of a case may be this close to the middle of two integers, in steps of the result.
MARGIN = mpf(3) / 10000


class TooCloseError(Exception):
    """A case whose results depend on errors of float32."""


def _check(holds):
    if not holds:
        raise TooCloseError


def channels_of(block_format, width):
    """Returns the channels of a head of `width` elements."""
    if block_format is None:
        return width
    return width // BLOCKS[block_format] * CHANNELS


def _blocks(block_format, elements):
    n = BLOCKS[block_format]
    return [elements[i:i + n] for i in range(0, len(elements), n)]


def _scale(block):
    bits = bytes(v % 256 for v in block[:2])
    return mpf(struct.unpack("<e", bits)[0])


def _quants(block_format, block):
    if block_format == "BLOCK_FORMAT_Q8_0":
        return block[2:]
    return [v % 16 - 8 for v in block[2:]] + [v % 256 // 16 - 8 for v in block[2:]]


def channels(block_format, elements):
    """Returns the numbers of a head's channels."""
    if block_format is None:
        return [mpf(v) for v in elements]
    return [_scale(block) * q for block in _blocks(block_format, elements)
            for q in _quants(block_format, block)]


def _sure(x):
    """Returns x, which must not be close to the middle of two integers."""
    _check(abs(mp.frac(x) - mpf(1) / 2) > MARGIN)
    return x


def _sure_scale(d):
    """Returns the binary16 number nearest to d."""
    low = nearest(d * (1 - MARGIN / 100), "DTYPE_FLOAT16")
    _check(low == nearest(d * (1 + MARGIN / 100), "DTYPE_FLOAT16"))
    return struct.pack("<e", float(low))


def _signed(byte):
    return byte - 256 if byte > 127 else byte


def _block(block_format, values):
    """Returns a block of 32 numbers, as signed bytes."""
    quants = BLOCKS[block_format] - 2
    if not all(mp.isfinite(v) for v in values):
        return [0, 0x7E] + [0] * quants
    largest = max(values, key=abs)
    if block_format == "BLOCK_FORMAT_Q8_0":
        d = abs(largest) / 127
        codes = [int(mp.nint(_sure(v / d))) if d else 0 for v in values]
    else:
        others = [abs(v) for v in values if v != largest]
        _check(max(others, default=0) <= abs(largest) * (1 - MARGIN))
        d = largest / -8
        nibbles = [min(15, int(mp.floor(_sure(v / d) + mpf(17) / 2))) if d else 8
                   for v in values]
        codes = [_signed(low + 16 * high)
                 for low, high in zip(nibbles, nibbles[16:])]
    bits = _sure_scale(d)
    if block_format == "BLOCK_FORMAT_Q4_0" and d == 0:
        bits = struct.pack("<e", -0.0)  # 0 / -8
    return [_signed(v) for v in bits] + codes


def replaced(block_format, elements, values, rotated):
    """Returns a head's elements with the numbers `values`, of which the channels
    `rotated` are new."""
    if block_format is None:
        return [max(-128, min(127, int(mp.nint(_sure(values[i])))))
                if i in rotated else v for i, v in enumerate(elements)]
    out = []
    for i, block in enumerate(_blocks(block_format, elements)):
        part = range(i * CHANNELS, (i + 1) * CHANNELS)
        out += (_block(block_format, [values[c] for c in part])
                if any(c in rotated for c in part) else block)
    return out
