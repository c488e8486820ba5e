"""The messages of posenc.v1, made from proto/posenc/v1 by generate_messages.py.

The .proto files are the specification: formulas, defaults and errors are
explained there. A field that is left as it is here is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Optional, Union

from .tensor import AsArray
from .wire import OPTIONAL, REPEATED, Buffer, Message
from .wire import field as _field


class Dtype(IntEnum):
    UNSPECIFIED = 0
    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    INT32 = 5
    INT64 = 6
    FLOAT8_E4M3FN = 7
    FLOAT8_E5M2 = 8
    INT8 = 9


# A value, or its name.
DtypeLike = Union[
    Dtype,
    Literal[
        "float32", "float16", "bfloat16", "float64", "int32", "int64", "float8_e4m3fn", "float8_e5m2", "int8"
    ],
]


class Saturation(IntEnum):
    UNSPECIFIED = 0
    FINITE = 1
    NONE = 2


# A value, or its name.
SaturationLike = Union[Saturation, Literal["finite", "none"]]


class BlockFormat(IntEnum):
    UNSPECIFIED = 0
    Q8_0 = 1
    Q4_0 = 2


# A value, or its name.
BlockFormatLike = Union[BlockFormat, Literal["q8_0", "q4_0"]]


class Layout(IntEnum):
    UNSPECIFIED = 0
    BSHD = 1
    BHSD = 2
    SBHD = 3
    THD = 4


# A value, or its name.
LayoutLike = Union[Layout, Literal["bshd", "bhsd", "sbhd", "thd"]]


@dataclass
class SharedMemory(Message):
    """A place in a file that client and server both map (GetServerInfoResponse.shared_memory).
    Only clients on unix sockets may name a place, unless the server also allows other clients. The
    client owns the file: the client makes it, at its full size, and removes it. If bytes change
    while a call reads them, only the resulting numbers are undefined. If a file is cut short
    during a call, the call fails (ERROR_REASON_SHARED_MEMORY_CUT), and its outputs are undefined."""

    name: str = _field(1, "string")
    offset: int = _field(2, "int64")


@dataclass
class Tensor(AsArray, Message):
    """A dense tensor. Exactly one of `data`, `values` and `shared` is set, unless the shape has no
    elements, or the elements come in a stream's `data`. A rotated or encoded tensor comes back in
    the form of the input. It comes back as `data` if the input was `shared` and the request names
    no output for it. All other tensors come back as `data`."""

    dtype: Dtype = _field(1, Dtype)
    shape: list[int] = _field(2, "int64", REPEATED)
    values: list[float] = _field(3, "double", REPEATED)
    shared: Optional[SharedMemory] = _field(4, SharedMemory)
    data: Buffer = _field(15, "bytes")


@dataclass
class SequenceStarts(Message):
    values: list[int] = _field(1, "int64", REPEATED)


@dataclass
class PackedSequences(Message):
    cu_seqlens: list[int] = _field(1, "int64", REPEATED)
    starts: list[int] = _field(2, "int64", REPEATED)


@dataclass
class Positions(Message):
    """The position of every token, |position| <= 2^31. A request with tokens must set one kind, so
    that forgotten positions are not taken as zeros. If an encoding has several axes, `start`,
    `starts` and `packed` give a token the same position on each axis, as for text. Grids
    (ASSIGNMENT_PER_AXIS, several axes of explicit frequencies) need `ids`."""

    start: Optional[int] = _field(1, "int64", OPTIONAL)
    starts: Optional[SequenceStarts] = _field(2, SequenceStarts)
    ids: Optional[Tensor] = _field(3, Tensor)
    packed: Optional[PackedSequences] = _field(4, PackedSequences)


class ModelPart(IntEnum):
    UNSPECIFIED = 0
    TEXT = 1
    VISION = 2
    AUDIO = 3
    INDEXER = 4


# A value, or its name.
ModelPartLike = Union[ModelPart, Literal["text", "vision", "audio", "indexer"]]


class Profile(IntEnum):
    UNSPECIFIED = 0
    HF = 1
    VLLM = 2
    LLAMA_CPP = 3
    GPT_OSS = 4
    DEEPSEEK = 5
    MISTRAL = 6
    MLX = 7


# A value, or its name.
ProfileLike = Union[Profile, Literal["hf", "vllm", "llama_cpp", "gpt_oss", "deepseek", "mistral", "mlx"]]


class Pairing(IntEnum):
    UNSPECIFIED = 0
    HALF_SPLIT = 1
    INTERLEAVED = 2


# A value, or its name.
PairingLike = Union[Pairing, Literal["half_split", "interleaved"]]


class RotarySlice(IntEnum):
    UNSPECIFIED = 0
    LEADING = 1
    TRAILING = 2


# A value, or its name.
RotarySliceLike = Union[RotarySlice, Literal["leading", "trailing"]]


class AnglePrecision(IntEnum):
    UNSPECIFIED = 0
    EXACT = 1
    FLOAT32 = 2


# A value, or its name.
AnglePrecisionLike = Union[AnglePrecision, Literal["exact", "float32"]]


class Direction(IntEnum):
    UNSPECIFIED = 0
    FORWARD = 1
    INVERSE = 2
    ADJOINT = 3


# A value, or its name.
DirectionLike = Union[Direction, Literal["forward", "inverse", "adjoint"]]


class RotaryAxesAssignment(IntEnum):
    UNSPECIFIED = 0
    SECTIONED = 1
    INTERLEAVED = 2
    ALTERNATING_TAIL = 3
    PER_AXIS = 4


# A value, or its name.
RotaryAxesAssignmentLike = Union[
    RotaryAxesAssignment,
    Literal[
        "sectioned", "interleaved", "alternating_tail", "per_axis"
    ],
]


@dataclass
class RotaryAxes(Message):
    """How several position axes share the pairs. The geometric frequencies of n pairs are
    rope_theta^(-i/n), then scaled."""

    assignment: RotaryAxesAssignment = _field(1, RotaryAxesAssignment)
    sections: list[int] = _field(2, "int32", REPEATED)
    axis_thetas: list[float] = _field(3, "double", REPEATED)
    halves_per_axis: bool = _field(4, "bool")
    position_axes: list[int] = _field(5, "int32", REPEATED)


@dataclass
class XPos(Message):
    """zeta_i^((p - center) / scale_base) multiplies q and divides k, so that scores decay with the
    distance; zeta_i = (2i/d + gamma) / (1 + gamma). One axis only."""

    scale_base: Optional[float] = _field(1, "double", OPTIONAL)
    gamma: Optional[float] = _field(2, "double", OPTIONAL)
    center: float = _field(3, "double")


@dataclass
class LinearScaling(Message):
    """Position interpolation (arXiv:2306.15595): w_i / factor."""

    factor: float = _field(1, "double")


@dataclass
class NtkScaling(Message):
    """NTK-aware base change: rope_theta * factor^(d / (d - 2)); d > 2. `factor` is Hunyuan's
    alpha."""

    factor: float = _field(1, "double")


@dataclass
class DynamicNtkScaling(Message):
    """NTK-aware base change that depends on the length L = RopeSource.sequence_length; d > 2. If L
    exceeds max_position_embeddings, the base is rope_theta * (factor * L / max_position_embeddings
    - (factor - 1))^(d / (d - 2))."""

    factor: float = _field(1, "double")
    max_position_embeddings: int = _field(2, "int64")


@dataclass
class YarnScaling(Message):
    """YaRN (arXiv:2309.00071). A pair completes a number of rotations in
    original_max_position_embeddings positions. This number decides whether the pair's frequency is
    divided by factor, kept, or scaled on a ramp between these two cases."""

    factor: float = _field(1, "double")
    original_max_position_embeddings: int = _field(2, "int64")
    beta_fast: Optional[float] = _field(3, "double", OPTIONAL)
    beta_slow: Optional[float] = _field(4, "double", OPTIONAL)
    attention_factor: Optional[float] = _field(5, "double", OPTIONAL)
    mscale: Optional[float] = _field(6, "double", OPTIONAL)
    mscale_all_dim: Optional[float] = _field(7, "double", OPTIONAL)
    truncate: Optional[bool] = _field(8, "bool", OPTIONAL)


@dataclass
class LongRopeScaling(Message):
    """LongRoPE (arXiv:2402.13753): w_i / long_factor[i] if RopeSource.sequence_length >
    original_max_position_embeddings, else w_i / short_factor[i]."""

    short_factor: list[float] = _field(1, "double", REPEATED)
    long_factor: list[float] = _field(2, "double", REPEATED)
    original_max_position_embeddings: int = _field(3, "int64")
    factor: Optional[float] = _field(4, "double", OPTIONAL)
    attention_factor: Optional[float] = _field(5, "double", OPTIONAL)
    short_mscale: Optional[float] = _field(6, "double", OPTIONAL)
    long_mscale: Optional[float] = _field(7, "double", OPTIONAL)


@dataclass
class Llama3Scaling(Message):
    """Llama 3.1: (1 - t) * w_i / factor + t * w_i. Here r = original_max_position_embeddings * w_i
    / (2 pi) is a number of rotations, and t = (r - low_freq_factor) / (high_freq_factor -
    low_freq_factor), clamped to [0, 1]."""

    factor: float = _field(1, "double")
    low_freq_factor: float = _field(2, "double")
    high_freq_factor: float = _field(3, "double")
    original_max_position_embeddings: int = _field(4, "int64")


@dataclass
class ProportionalScaling(Message):
    """Gemma 4: rotary_dim, the denominator of the exponent, is the whole head. Pairs [0,
    rotating_pairs) rotate with w_i / factor; the other pairs do not rotate."""

    factor: Optional[float] = _field(1, "double", OPTIONAL)
    rotating_pairs: int = _field(2, "int32")


@dataclass
class ExplicitFrequencies(Message):
    """Angular frequencies in radians per position, used without change: trained frequencies, or
    frequencies of a rule that has no message here. rope_theta must be unset."""

    values: list[float] = _field(1, "double", REPEATED)
    heads: int = _field(2, "int32")
    axes: int = _field(3, "int32")


@dataclass
class RopeSpec(Message):
    """A rotary position encoding (RoFormer, arXiv:2104.09864). Pair i at position p rotates by phi
    = p * w_i: (x, y) -> amplitude * (x cos phi - y sin phi, x sin phi + y cos phi), with w_i =
    rope_theta^(-2i/d) before scaling and d = rotary_dim."""

    rotary_dim: int = _field(1, "int32")
    slice: RotarySlice = _field(2, RotarySlice)
    rope_theta: Optional[float] = _field(3, "double", OPTIONAL)
    pairing: Pairing = _field(4, Pairing)
    output_pairing: Pairing = _field(5, Pairing)
    amplitude: Optional[float] = _field(6, "double", OPTIONAL)
    reverse: bool = _field(7, "bool")
    angle_precision: AnglePrecision = _field(8, AnglePrecision)
    axes: Optional[RotaryAxes] = _field(9, RotaryAxes)
    xpos: Optional[XPos] = _field(10, XPos)
    nope: bool = _field(11, "bool")
    linear: Optional[LinearScaling] = _field(20, LinearScaling)
    ntk: Optional[NtkScaling] = _field(21, NtkScaling)
    dynamic_ntk: Optional[DynamicNtkScaling] = _field(22, DynamicNtkScaling)
    yarn: Optional[YarnScaling] = _field(23, YarnScaling)
    longrope: Optional[LongRopeScaling] = _field(24, LongRopeScaling)
    llama3: Optional[Llama3Scaling] = _field(25, Llama3Scaling)
    proportional: Optional[ProportionalScaling] = _field(26, ProportionalScaling)
    explicit_frequencies: Optional[ExplicitFrequencies] = _field(27, ExplicitFrequencies)


@dataclass
class RopeSource(Message):
    """A rotary encoding: written out, named, or read from a model's own configuration. For many
    small calls, resolve once with ResolveRope and send the `spec`, which is short and needs no
    parsing."""

    spec: Optional[RopeSpec] = _field(1, RopeSpec)
    preset: Optional[str] = _field(2, "string", OPTIONAL)
    config_json: Optional[str] = _field(3, "string", OPTIONAL)
    profile: Profile = _field(4, Profile)
    layer_type: Optional[str] = _field(5, "string", OPTIONAL)
    layer_index: Optional[int] = _field(6, "int32", OPTIONAL)
    sequence_length: Optional[int] = _field(7, "int64", OPTIONAL)
    part: ModelPart = _field(8, ModelPart)
    profile_version: str = _field(9, "string")
    head_dim: int = _field(10, "int32")


@dataclass
class QueryScale(Message):
    """Position-dependent temperature: q *= 1 + beta * ln(1 + floor((p + offset) / floor_scale)). A
    negative p + offset counts as 0."""

    beta: float = _field(1, "double")
    floor_scale: float = _field(2, "double")
    offset: int = _field(3, "int64")


class SinusoidalOrder(IntEnum):
    UNSPECIFIED = 0
    INTERLEAVED = 1
    SIN_COS = 2
    COS_SIN = 3


# A value, or its name.
SinusoidalOrderLike = Union[SinusoidalOrder, Literal["interleaved", "sin_cos", "cos_sin"]]


class Combination(IntEnum):
    UNSPECIFIED = 0
    ADD = 1
    MULTIPLY = 2
    CONCATENATE = 3


# A value, or its name.
CombinationLike = Union[Combination, Literal["add", "multiply", "concatenate"]]


@dataclass
class Sinusoidal(Message):
    """sin and cos of p * w_i, for the position p and the frequencies w_i."""

    dim: int = _field(1, "int32")
    base: Optional[float] = _field(2, "double", OPTIONAL)
    order: SinusoidalOrder = _field(3, SinusoidalOrder)
    endpoint: bool = _field(4, "bool")
    padding_position: Optional[int] = _field(5, "int64", OPTIONAL)
    odd_dim_sine: bool = _field(6, "bool")


@dataclass
class LearnedTable(Message):
    """Rows of a trained table."""

    hierarchical_alpha: Optional[float] = _field(1, "double", OPTIONAL)
    table: Optional[Tensor] = _field(15, Tensor)


@dataclass
class SincosGrid(Message):
    """Rows of sines and cosines for the cells of a grid, in row-major order (MAE,
    arXiv:2111.06377, and vision towers). Each axis has dim / axes channels: a Sinusoidal in
    SIN_COS order. A request with this encoding has no positions."""

    dim: int = _field(1, "int32")
    extents: list[int] = _field(2, "int32", REPEATED)
    base: Optional[float] = _field(3, "double", OPTIONAL)
    last_axis_first: bool = _field(4, "bool")
    leading_zero_rows: int = _field(5, "int32")
    steps: list[float] = _field(6, "double", REPEATED)


@dataclass
class Timestep(Message):
    """Diffusion timestep embedding. With n = floor(dim/2), a row has n sines, then n cosines, of
    scale * p * max_period^(-i / (n - downscale_freq_shift)). If dim is odd, the last channel is
    zero."""

    dim: int = _field(1, "int32")
    max_period: Optional[float] = _field(2, "double", OPTIONAL)
    cos_first: bool = _field(3, "bool")
    downscale_freq_shift: Optional[float] = _field(4, "double", OPTIONAL)
    scale: Optional[float] = _field(5, "double", OPTIONAL)


@dataclass
class FourierFeatures(Message):
    """Fourier features (arXiv:2006.10739): sin and cos of 2 pi x B, for the position x (one
    coordinate per axis)."""

    cos_first: bool = _field(1, "bool")
    frequencies: Optional[Tensor] = _field(15, Tensor)


@dataclass
class AbsoluteEncoding(Message):
    """An absolute encoding: one row of dim channels per position."""

    sinusoidal: Optional[Sinusoidal] = _field(1, Sinusoidal)
    learned: Optional[LearnedTable] = _field(2, LearnedTable)
    sincos_grid: Optional[SincosGrid] = _field(3, SincosGrid)
    timestep: Optional[Timestep] = _field(4, Timestep)
    fourier_features: Optional[FourierFeatures] = _field(5, FourierFeatures)


@dataclass
class Alibi(Message):
    """Linear bias (arXiv:2108.12409): -slope[h] * |i - j|."""

    heads: int = _field(1, "int32")
    max_bias: Optional[float] = _field(2, "double", OPTIONAL)
    slopes: list[float] = _field(3, "double", REPEATED)


@dataclass
class T5Buckets(Message):
    """Bucketed relative positions (T5, arXiv:1910.10683)."""

    num_buckets: int = _field(1, "int32")
    max_distance: int = _field(2, "int32")
    bidirectional: bool = _field(3, "bool")
    weights: Optional[Tensor] = _field(15, Tensor)


class KerpleKernel(IntEnum):
    UNSPECIFIED = 0
    LOGARITHMIC = 1
    POWER = 2


# A value, or its name.
KerpleKernelLike = Union[KerpleKernel, Literal["logarithmic", "power"]]


@dataclass
class Kerple(Message):
    """Kernelized relative positions (arXiv:2205.09921)."""

    kernel: KerpleKernel = _field(1, KerpleKernel)
    r1: list[float] = _field(2, "double", REPEATED)
    r2: list[float] = _field(3, "double", REPEATED)


@dataclass
class Fire(Message):
    """FIRE (arXiv:2310.04418): mlp(psi(i - j) / (psi(max(i, threshold)) + epsilon)), psi(x) =
    ln(|c x| + 1), mlp(x) = w2 relu(w1 x + b1) + b2."""

    c: float = _field(1, "double")
    threshold: float = _field(2, "double")
    epsilon: float = _field(3, "double")
    w1: Optional[Tensor] = _field(11, Tensor)
    b1: Optional[Tensor] = _field(12, Tensor)
    w2: Optional[Tensor] = _field(13, Tensor)
    b2: Optional[Tensor] = _field(14, Tensor)


@dataclass
class Sandwich(Message):
    """Sandwich (arXiv:2212.10356), for h = 1..heads: (sum over n = 1..dim/2 of cos((i - j) /
    10000^(2n/dim)) - dim/2) / (8 h / heads)."""

    heads: int = _field(1, "int32")
    dim: int = _field(2, "int32")


@dataclass
class ClippedDistance(Message):
    """clip(j - i, -left, right) + left. In Shaw's paper, left = right = k; in SpeechT5, right =
    left - 1."""

    left: int = _field(1, "int32")
    right: int = _field(2, "int32")


@dataclass
class DebertaBuckets(Message):
    """With m = bucket_size / 2, bucket(r) is r for |r| <= m, else sign(r) * (m + ceil((m - 1) *
    ln(|r| / m) / ln((max_position - 1) / m)))."""

    bucket_size: int = _field(1, "int32")
    max_position: int = _field(2, "int32")


@dataclass
class GridIndex(Message):
    """Positions count the cells of a grid in row-major order. Axis a has the difference i_a - j_a
    + extents[a] - 1. The index is the row-major index of these differences."""

    extents: list[int] = _field(1, "int32", REPEATED)


@dataclass
class RelativeIndex(Message):
    """Relative indices, with which the caller looks up rows of its own table: int32 tiles of one
    head."""

    clip: Optional[ClippedDistance] = _field(1, ClippedDistance)
    deberta: Optional[DebertaBuckets] = _field(2, DebertaBuckets)
    grid: Optional[GridIndex] = _field(3, GridIndex)


@dataclass
class UntiedPositions(Message):
    """TUPE's untied position term (arXiv:2006.15595): scale * position_queries[i] .
    position_keys[j]. Row p belongs to position p; positions past the last row are OUT_OF_RANGE."""

    scale: Optional[float] = _field(1, "double", OPTIONAL)
    position_queries: Optional[Tensor] = _field(14, Tensor)
    position_keys: Optional[Tensor] = _field(15, Tensor)


@dataclass
class Bias(Message):
    """An additive attention bias that depends only on the query's position i and the key's
    position j."""

    alibi: Optional[Alibi] = _field(1, Alibi)
    t5: Optional[T5Buckets] = _field(2, T5Buckets)
    kerple: Optional[Kerple] = _field(3, Kerple)
    fire: Optional[Fire] = _field(4, Fire)
    sandwich: Optional[Sandwich] = _field(5, Sandwich)
    relative_index: Optional[RelativeIndex] = _field(6, RelativeIndex)
    untied_positions: Optional[UntiedPositions] = _field(7, UntiedPositions)


@dataclass
class ShawScore(Message):
    """q_i . (k_j + a[clip(j - i, -left, right) + left]) (arXiv:1803.02155, eq. 4) with right =
    rows - 1 - left."""

    left: Optional[int] = _field(1, "int32", OPTIONAL)
    key_table: Optional[Tensor] = _field(15, Tensor)


@dataclass
class TransformerXlScore(Message):
    """(q_i + u) . k_j + (q_i + v) . r_(i - j) (arXiv:1901.02860, section 3.3); -infinity if j > i."""

    clamp_distance: int = _field(1, "int64")
    u: Optional[Tensor] = _field(12, Tensor)
    v: Optional[Tensor] = _field(13, Tensor)
    r: Optional[Tensor] = _field(14, Tensor)


@dataclass
class DebertaScore(Message):
    """q_i . k_j + q_i . position_keys[x] + k_j . position_queries[x], x = clip(bucket(i - j) +
    span, 0, 2 * span - 1) (arXiv:2006.03654)."""

    buckets: Optional[DebertaBuckets] = _field(1, DebertaBuckets)
    paper_position_to_content: bool = _field(2, "bool")
    position_keys: Optional[Tensor] = _field(14, Tensor)
    position_queries: Optional[Tensor] = _field(15, Tensor)


@dataclass
class RelativeScore(Message):
    """Attention scores that need the content as well as the positions: q [B, H, Sq, D] and k [B,
    H, Sk, D] give [B, H, Sq, Sk]. The scores are not scaled: the caller multiplies by 1/sqrt(D),
    or by the model's own factor."""

    shaw: Optional[ShawScore] = _field(1, ShawScore)
    transformer_xl: Optional[TransformerXlScore] = _field(2, TransformerXlScore)
    deberta: Optional[DebertaScore] = _field(3, DebertaScore)


class DescriptionKind(IntEnum):
    UNSPECIFIED = 0
    CONFIG = 1
    PARAMS = 2
    TOKENIZER = 3
    GGUF = 4
    SAFETENSORS = 5


# A value, or its name.
DescriptionKindLike = Union[DescriptionKind, Literal["config", "params", "tokenizer", "gguf", "safetensors"]]


class Severity(IntEnum):
    UNSPECIFIED = 0
    ERROR = 1
    WARNING = 2
    NOTE = 3


# A value, or its name.
SeverityLike = Union[Severity, Literal["error", "warning", "note"]]


@dataclass
class NamedTensor(Message):
    name: str = _field(1, "string")
    tensor: Optional[Tensor] = _field(2, Tensor)


@dataclass
class ModelDescription(Message):
    """The parts of one checkpoint file that describe rotary encodings."""

    path: str = _field(1, "string")
    kind: DescriptionKind = _field(2, DescriptionKind)
    text: str = _field(3, "string")
    gguf: Buffer = _field(4, "bytes")
    tables: list[NamedTensor] = _field(5, NamedTensor, REPEATED)
    key_rows: int = _field(6, "int64")
    query_rows: Optional[NamedTensor] = _field(7, NamedTensor)
    unreadable: str = _field(8, "string")


@dataclass
class DescriptionReport(Message):
    path: str = _field(1, "string")
    kind: DescriptionKind = _field(2, DescriptionKind)
    model_type: str = _field(3, "string")
    content_hash: str = _field(4, "string")
    unreadable: str = _field(5, "string")
    spec: str = _field(6, "string")


@dataclass
class ReaderVerdict(Message):
    """How much the encoding of one reader differs from the reference's encoding."""

    name: str = _field(1, "string")
    says: str = _field(2, "string")
    first_distance: int = _field(3, "int64")
    kept_at_length: float = _field(4, "double")
    first_angle: int = _field(5, "int64")
    amplitude_ratio: float = _field(6, "double")
    worst_pair: int = _field(7, "int32")
    least_kept: float = _field(8, "double")


@dataclass
class Finding(Message):
    id: str = _field(1, "string")
    severity: Severity = _field(2, Severity)
    message: str = _field(3, "string")
    fix: str = _field(4, "string")
    inputs: list[str] = _field(5, "string", REPEATED)
    keys: list[str] = _field(6, "string", REPEATED)
    layers: list[int] = _field(7, "int32", REPEATED)
    readers: list[ReaderVerdict] = _field(8, ReaderVerdict, REPEATED)
    see: list[str] = _field(9, "string", REPEATED)


@dataclass
class FindingCounts(Message):
    error: int = _field(1, "int32")
    warning: int = _field(2, "int32")
    note: int = _field(3, "int32")


class TableLayout(IntEnum):
    UNSPECIFIED = 0
    HALF = 1
    DUPLICATED = 2
    PAIR_REPEATED = 3
    COMPLEX = 4


# A value, or its name.
TableLayoutLike = Union[TableLayout, Literal["half", "duplicated", "pair_repeated", "complex"]]


@dataclass
class GetServerInfoRequest(Message):
    pass


@dataclass
class Limits(Message):
    max_request_bytes: int = _field(1, "int64")
    max_response_bytes: int = _field(2, "int64")
    max_rotary_dim: int = _field(3, "int64")
    stream_chunk_bytes: int = _field(4, "int64")


@dataclass
class SharedMemoryInfo(Message):
    directory: str = _field(1, "string")
    prefix: str = _field(2, "string")
    max_bytes: int = _field(3, "int64")


@dataclass
class GetServerInfoResponse(Message):
    version: str = _field(1, "string")
    instruction_set: str = _field(2, "string")
    limits: Optional[Limits] = _field(3, Limits)
    presets: list[str] = _field(4, "string", REPEATED)
    tensor_dtypes: list[Dtype] = _field(5, Dtype, REPEATED)
    shared_memory: Optional[SharedMemoryInfo] = _field(6, SharedMemoryInfo)


@dataclass
class ResolveRopeRequest(Message):
    rope: Optional[RopeSource] = _field(1, RopeSource)
    head_dim: int = _field(2, "int32")
    compare_with: Optional[RopeSource] = _field(3, RopeSource)
    length: int = _field(4, "int64")


@dataclass
class Assumption(Message):
    field: str = _field(1, "string")
    value: str = _field(2, "string")
    reason: str = _field(3, "string")


@dataclass
class RopeDifference(Message):
    equal: bool = _field(1, "bool")
    max_relative_frequency_difference: float = _field(2, "double")
    worst_pair: int = _field(3, "int32")
    amplitude_ratio: float = _field(4, "double")
    first_diverging_position: int = _field(5, "int64")
    explanations: list[str] = _field(6, "string", REPEATED)
    first_distance: int = _field(7, "int64")
    kept_at_length: float = _field(8, "double")
    length: int = _field(9, "int64")


@dataclass
class ResolveRopeResponse(Message):
    spec: Optional[RopeSpec] = _field(1, RopeSpec)
    head_dim: int = _field(2, "int32")
    inv_freq: list[float] = _field(3, "double", REPEATED)
    axis_of_pair: list[int] = _field(4, "int32", REPEATED)
    amplitude: float = _field(5, "double")
    softmax_scale_multiplier: float = _field(6, "double")
    query_scale: Optional[QueryScale] = _field(7, QueryScale)
    assumptions: list[Assumption] = _field(8, Assumption, REPEATED)
    warnings: list[str] = _field(9, "string", REPEATED)
    content_hash: str = _field(10, "string")
    difference: Optional[RopeDifference] = _field(11, RopeDifference)


@dataclass
class BuildTableRequest(Message):
    rope: Optional[RopeSource] = _field(1, RopeSource)
    absolute: Optional[AbsoluteEncoding] = _field(2, AbsoluteEncoding)
    positions: Optional[Positions] = _field(3, Positions)
    rows: int = _field(4, "int64")
    layout: TableLayout = _field(5, TableLayout)
    dtype: Dtype = _field(6, Dtype)
    for_keys: bool = _field(7, "bool")
    cos_output: Optional[SharedMemory] = _field(8, SharedMemory)
    sin_output: Optional[SharedMemory] = _field(9, SharedMemory)
    table_output: Optional[SharedMemory] = _field(10, SharedMemory)


@dataclass
class BuildTableResponse(Message):
    """If explicit frequencies differ by head, every shape starts with the number of heads."""

    amplitude: float = _field(1, "double")
    cos: Optional[Tensor] = _field(13, Tensor)
    sin: Optional[Tensor] = _field(14, Tensor)
    table: Optional[Tensor] = _field(15, Tensor)


@dataclass
class BuildTableStreamRequest(Message):
    table: Optional[BuildTableRequest] = _field(1, BuildTableRequest)
    rows_per_message: int = _field(2, "int64")


@dataclass
class BuildTableStreamResponse(Message):
    amplitude: float = _field(1, "double")
    first_row: int = _field(2, "int64")
    whole_shape: list[int] = _field(3, "int64", REPEATED)
    cos: Optional[Tensor] = _field(13, Tensor)
    sin: Optional[Tensor] = _field(14, Tensor)
    table: Optional[Tensor] = _field(15, Tensor)


@dataclass
class BuildBiasRequest(Message):
    bias: Optional[Bias] = _field(1, Bias)
    query_start: int = _field(2, "int64")
    query_length: int = _field(3, "int64")
    key_start: int = _field(4, "int64")
    key_length: int = _field(5, "int64")
    query_tile: int = _field(6, "int64")
    key_tile: int = _field(7, "int64")
    dtype: Dtype = _field(8, Dtype)
    causal: bool = _field(9, "bool")


@dataclass
class BuildBiasResponse(Message):
    """Tiles come in row-major order of the matrix."""

    query_start: int = _field(1, "int64")
    key_start: int = _field(2, "int64")
    whole_shape: list[int] = _field(3, "int64", REPEATED)
    tile: Optional[Tensor] = _field(15, Tensor)


@dataclass
class PackedPositions(Message):
    """Positions of packed sequences, [T]: each sequence starts again at 0."""

    lengths: list[int] = _field(1, "int64", REPEATED)


@dataclass
class PaddedPositions(Message):
    """Positions of padded sequences, [B, S]: one row per sequence."""

    lengths: list[int] = _field(1, "int64", REPEATED)
    padded_length: int = _field(2, "int64")
    left: bool = _field(3, "bool")
    padding_position: int = _field(4, "int64")


@dataclass
class ContextParallelPositions(Message):
    """Positions of the tokens on one device, [T]. Each sequence is cut into 2 * size chunks; rank
    r has chunks r and 2 * size - 1 - r."""

    lengths: list[int] = _field(1, "int64", REPEATED)
    size: int = _field(2, "int32")
    rank: int = _field(3, "int32")


@dataclass
class GridPositions(Message):
    """Coordinates of grid cells, [axes, cells]: offsets[a] + steps[a] * index. The ids are float64
    if offsets or steps are set."""

    extents: list[int] = _field(1, "int64", REPEATED)
    offsets: list[float] = _field(2, "double", REPEATED)
    steps: list[float] = _field(3, "double", REPEATED)
    merge_size: int = _field(4, "int32")


@dataclass
class MultimodalPositionsVisionGrid(Message):
    time: int = _field(1, "int64")
    height: int = _field(2, "int64")
    width: int = _field(3, "int64")
    spatial_merge_size: int = _field(4, "int32")
    time_step: Optional[float] = _field(5, "double", OPTIONAL)


@dataclass
class MultimodalPositionsSpan(Message):
    text_tokens: Optional[int] = _field(1, "int64", OPTIONAL)
    vision: Optional[MultimodalPositionsVisionGrid] = _field(2, MultimodalPositionsVisionGrid)


@dataclass
class MultimodalPositions(Message):
    """Positions of the text and vision spans of one sequence, in order: [3, T] (time, height,
    width). A span starts at the greatest position so far plus 1, as in Qwen2-VL. There are at most
    16384 spans."""

    spans: list[MultimodalPositionsSpan] = _field(1, MultimodalPositionsSpan, REPEATED)


@dataclass
class AttentionSinkPositions(Message):
    """Original positions of the tokens that a cache keeps, [T]: the first `sinks` tokens and the
    last `window` tokens of `length` tokens. In the cache, the kept tokens have the positions 0, 1,
    2 and so on. Reposition moves them from these ids to a `start` of 0 (StreamingLLM,
    arXiv:2309.17453)."""

    sinks: int = _field(1, "int64")
    window: int = _field(2, "int64")
    length: int = _field(3, "int64")


@dataclass
class VisionPositionsGrid(Message):
    time: int = _field(1, "int64")
    height: int = _field(2, "int64")
    width: int = _field(3, "int64")


@dataclass
class VisionPositions(Message):
    """Position ids, [axes, T], for the tokens of a vision tower or of a diffusion transformer.
    They equal the ids of the model's class in transformers or diffusers, in axes, order of the
    patches, first index, class tokens and units. Fractional ids are float32 (SAM 3, and DINOv3
    with 2 pi times coordinates in [-1, 1]). A tower with windowed attention applies one
    permutation to tokens and ids. The caller must apply this permutation."""

    rope: Optional[RopeSource] = _field(1, RopeSource)
    grids: list[VisionPositionsGrid] = _field(2, VisionPositionsGrid, REPEATED)
    merge_size: int = _field(3, "int32")
    text_tokens: int = _field(4, "int64")


@dataclass
class BuildPositionsRequest(Message):
    packed: Optional[PackedPositions] = _field(1, PackedPositions)
    padded: Optional[PaddedPositions] = _field(2, PaddedPositions)
    context_parallel: Optional[ContextParallelPositions] = _field(3, ContextParallelPositions)
    grid: Optional[GridPositions] = _field(4, GridPositions)
    multimodal: Optional[MultimodalPositions] = _field(5, MultimodalPositions)
    attention_sinks: Optional[AttentionSinkPositions] = _field(6, AttentionSinkPositions)
    vision: Optional[VisionPositions] = _field(7, VisionPositions)


@dataclass
class BuildPositionsResponse(Message):
    positions: Optional[Positions] = _field(1, Positions)
    next_position: int = _field(2, "int64")
    delta: int = _field(3, "int64")


@dataclass
class ApplyRopeRequest(Message):
    rope: Optional[RopeSource] = _field(1, RopeSource)
    positions: Optional[Positions] = _field(2, Positions)
    layout: Layout = _field(3, Layout)
    direction: Direction = _field(4, Direction)
    query_scale: Optional[QueryScale] = _field(5, QueryScale)
    saturation: Saturation = _field(6, Saturation)
    q_output: Optional[SharedMemory] = _field(7, SharedMemory)
    k_output: Optional[SharedMemory] = _field(8, SharedMemory)
    q: Optional[Tensor] = _field(14, Tensor)
    k: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ApplyRopeResponse(Message):
    q: Optional[Tensor] = _field(14, Tensor)
    k: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ApplyRopeStreamRequest(Message):
    """Carries bytes of the tensors of `call` (see the comment of the service)."""

    call: Optional[ApplyRopeRequest] = _field(1, ApplyRopeRequest)
    data: Buffer = _field(15, "bytes")


@dataclass
class ApplyRopeStreamResponse(Message):
    data: Buffer = _field(15, "bytes")


@dataclass
class Movement(Message):
    """The old and the new positions of keys."""

    old_positions: Optional[Positions] = _field(1, Positions)
    new_positions: Optional[Positions] = _field(2, Positions)
    shift: Optional[int] = _field(3, "int64", OPTIONAL)
    shifts: Optional[Tensor] = _field(4, Tensor)


@dataclass
class CacheLayout(Message):
    """A paged cache of keys, or of keys and values. The keys of the tokens in block_table or slots
    rotate; all other bytes come back unchanged. If a cache in shared memory is its own output,
    these keys are rotated in place, and bytes of other tokens are neither read nor written. In the
    shapes of positions and shifts, B is the number of sequences (the rows of `block_table` or
    `slots`), and S is the greatest length. The call is INVALID_ARGUMENT if block_table or slots
    names a block or slot that k does not have. It is also INVALID_ARGUMENT if two tokens have the
    same slot, because a key cannot have two positions. If several sequences share a block (a
    common prefix), first copy the block, so that each sequence has its own block."""

    dimensions: str = _field(1, "string")
    block_table: Optional[Tensor] = _field(2, Tensor)
    lengths: list[int] = _field(3, "int64", REPEATED)
    slots: Optional[Tensor] = _field(4, Tensor)
    layers: list[int] = _field(5, "int32", REPEATED)
    model_layers: list[int] = _field(6, "int32", REPEATED)


@dataclass
class RepositionRequest(Message):
    old_rope: Optional[RopeSource] = _field(1, RopeSource)
    new_rope: Optional[RopeSource] = _field(2, RopeSource)
    movement: Optional[Movement] = _field(3, Movement)
    layout: Layout = _field(4, Layout)
    saturation: Saturation = _field(5, Saturation)
    k_output: Optional[SharedMemory] = _field(6, SharedMemory)
    cache: Optional[CacheLayout] = _field(7, CacheLayout)
    block_format: BlockFormat = _field(8, BlockFormat)
    k: Optional[Tensor] = _field(15, Tensor)


@dataclass
class RepositionResponse(Message):
    k: Optional[Tensor] = _field(15, Tensor)


@dataclass
class RepositionStreamRequest(Message):
    """Carries bytes of the tensors of `call` (see the comment of the service)."""

    call: Optional[RepositionRequest] = _field(1, RepositionRequest)
    data: Buffer = _field(15, "bytes")


@dataclass
class RepositionStreamResponse(Message):
    data: Buffer = _field(15, "bytes")


@dataclass
class AddEncodingRequest(Message):
    encoding: Optional[AbsoluteEncoding] = _field(1, AbsoluteEncoding)
    positions: Optional[Positions] = _field(2, Positions)
    combination: Combination = _field(3, Combination)
    x_scale: Optional[float] = _field(4, "double", OPTIONAL)
    x_output: Optional[SharedMemory] = _field(5, SharedMemory)
    x: Optional[Tensor] = _field(15, Tensor)


@dataclass
class AddEncodingResponse(Message):
    x: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ScoreRelativeRequest(Message):
    score: Optional[RelativeScore] = _field(1, RelativeScore)
    query_start: int = _field(2, "int64")
    key_start: int = _field(3, "int64")
    dtype: Dtype = _field(4, Dtype)
    scores_output: Optional[SharedMemory] = _field(5, SharedMemory)
    q: Optional[Tensor] = _field(14, Tensor)
    k: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ScoreRelativeResponse(Message):
    scores: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ConvertPairingRequest(Message):
    old_pairing: Pairing = _field(1, Pairing)
    new_pairing: Pairing = _field(2, Pairing)
    heads: int = _field(3, "int32")
    rotary_dim: int = _field(4, "int32")
    slice: RotarySlice = _field(5, RotarySlice)
    weight_output: Optional[SharedMemory] = _field(6, SharedMemory)
    weight: Optional[Tensor] = _field(15, Tensor)


@dataclass
class ConvertPairingResponse(Message):
    weight: Optional[Tensor] = _field(15, Tensor)


@dataclass
class AnalyzeRopeRequest(Message):
    rope: Optional[RopeSource] = _field(1, RopeSource)
    head_dim: int = _field(2, "int32")
    max_distance: int = _field(3, "int64")
    distance_step: int = _field(4, "int64")
    trained_length: int = _field(5, "int64")
    compare_with: Optional[RopeSource] = _field(6, RopeSource)


@dataclass
class AnalyzeRopeResponse(Message):
    """The encoding must have one axis."""

    wavelengths: list[float] = _field(1, "double", REPEATED)
    decay: list[float] = _field(2, "double", REPEATED)
    similarity: list[float] = _field(3, "double", REPEATED)
    pairs_within_trained_length: int = _field(4, "int32")
    kept: list[float] = _field(5, "double", REPEATED)


@dataclass
class DiagnoseRopeRequest(Message):
    inputs: list[ModelDescription] = _field(1, ModelDescription, REPEATED)
    readers: list[str] = _field(2, "string", REPEATED)
    length: int = _field(3, "int64")
    runtime: str = _field(4, "string")


@dataclass
class DiagnoseRopeResponse(Message):
    inputs: list[DescriptionReport] = _field(1, DescriptionReport, REPEATED)
    findings: list[Finding] = _field(2, Finding, REPEATED)
    summary: Optional[FindingCounts] = _field(3, FindingCounts)
    length: int = _field(4, "int64")
