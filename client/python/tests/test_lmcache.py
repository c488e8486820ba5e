"""Moves chunks of the real LMCache (`./run examples lmcache`). The expected keys come from formulas, in float64."""

import json
import os
import sys
import types

import numpy
import pytest

REASON = "lmcache is not installed: pip install lmcache, or ./run examples lmcache"
torch = pytest.importorskip("torch", reason=REASON)
os.environ["LMCACHE_TRACK_USAGE"] = "false"  # LMCache then sends no statistics
pytest.importorskip("lmcache", reason=REASON)

import posenc  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.cache_engine import LMCacheEngineBuilder  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.gpu_connector import GPUConnectorInterface  # noqa: E402
from lmcache.v1.memory_allocators.tensor_memory_allocator import TensorMemoryAllocator  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend  # noqa: E402
from posenc import lmcache  # noqa: E402

LAYERS, HEADS, DIM, TOKENS, OLD, NEW = 6, 2, 64, 40, 512, 90001
DTYPES = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # with half an ulp of 1
LLAMA = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": HEADS,
         "head_dim": DIM, "num_hidden_layers": LAYERS, "rope_theta": 500000.0, "max_position_embeddings": 131072}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
GEMMA = {**LLAMA, "model_type": "gemma3_text", "rope_theta": 1e6, "rope_local_base_freq": 1e4,
         "sliding_window": 1024, "sliding_window_pattern": 6}  # fmt: skip


def plain(theta):
    return theta ** (-numpy.arange(0, DIM, 2) / DIM)


def llama3():
    turns = 8192 * plain(5e5) / (2 * numpy.pi)
    kept = numpy.clip((turns - 1) / (4 - 1), 0, 1)
    return plain(5e5) * (kept + (1 - kept) / 8)


def yarn():
    low, high = (DIM * numpy.log(32768 / (turns * 2 * numpy.pi)) / (2 * numpy.log(5e5)) for turns in (32, 1))
    kept = 1 - numpy.clip((numpy.arange(DIM // 2) - numpy.floor(low)) / (numpy.ceil(high) - numpy.floor(low)), 0, 1)
    return plain(5e5) * (kept + (1 - kept) / 4)


# A configuration, the frequencies of each layer, and the factor of rotated keys.
CASES = {
    "plain": (LLAMA, [plain(5e5)] * LAYERS, 1.0),
    "llama3": ({**LLAMA, "rope_scaling": LLAMA3}, [llama3()] * LAYERS, 1.0),
    "yarn": ({**LLAMA, "rope_scaling": YARN}, [yarn()] * LAYERS, 0.1 * numpy.log(4) + 1),
    "gemma3: two bases": (GEMMA, [plain(1e4)] * 5 + [plain(1e6)], 1.0),
}


def rotated(raw, frequencies, start):
    """raw: [layers, tokens, heads, head_dim]."""
    angle = (start + numpy.arange(raw.shape[1]))[:, None, None] * numpy.array(frequencies)[:, None, None, :]
    x, y = numpy.split(raw, 2, -1)
    return numpy.concatenate([x * numpy.cos(angle) - y * numpy.sin(angle),
                              x * numpy.sin(angle) + y * numpy.cos(angle)], -1)  # fmt: skip


def error(keys, expected):
    """The largest error of a channel, relative to the length of its pair."""
    length = numpy.hypot(*numpy.split(expected, 2, -1))
    found = keys.view(expected.shape).to(torch.float64).numpy()
    return (numpy.abs(found - expected) / numpy.concatenate([length, length], -1)).max()


def bound(half_ulp):
    """Bound of the error: old rounding, new rounding, and 10 units of float32 for the rotation, as in the vectors."""
    return 2 * half_ulp + 10 * 2.0**-24


def chunk(random, frequencies, factor, dtype):
    """Returns keys before their rotation, and the chunk of an engine that computed them at OLD."""
    raw = random.standard_normal((LAYERS, TOKENS, HEADS, DIM)) * factor
    keys = torch.from_numpy(rotated(raw, frequencies, OLD)).to(dtype)
    return raw, torch.stack([keys, torch.randn(keys.shape, dtype=dtype)]).flatten(3)


@pytest.fixture(scope="module")
def client(posencd):
    os.environ["POSENCD"] = posencd
    with posenc.local() as client:
        yield client


def mover_of(client, config):
    ropes = [client.rope(config, layer_index=i) for i in range(LAYERS)]
    return lmcache.Mover(client, ropes, DIM)


def backend(allocator):
    """LMCache's own storage in memory."""
    config = LMCacheEngineConfig.from_defaults(local_cpu=True)
    return LocalCPUBackend(config, dst_device="cpu", memory_allocator=allocator)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_a_stored_chunk_gets_the_keys_of_its_new_positions(client, random, case, dtype, shares):
    config, frequencies, factor = CASES[case]
    raw, tensor = chunk(random, frequencies, factor, dtype)
    # LMCache's chunks may lie in memory that the server maps. Then no key is copied.
    memory = client.shared_region(1 << 20).array(1 << 20, torch.int8) if shares else torch.empty(1 << 20)
    storage = backend(TensorMemoryAllocator(memory))
    key = CacheEngineKey("model", 1, 0, 7, dtype)
    stored = storage.memory_allocator.allocate(tensor.shape, dtype, MemoryFormat.KV_2LTD)
    stored.tensor.copy_(tensor)
    storage.submit_put_task(key, stored)

    found = storage.get_blocking(key)
    mover = mover_of(client, config)
    mover.move(found, NEW, old_start=OLD)
    assert (mover._region is None) == shares
    assert error(found.tensor[0], rotated(raw, frequencies, NEW)) <= bound(DTYPES[dtype])
    assert torch.equal(found.tensor[1], tensor[1])
    assert found.metadata.cached_positions.tolist() == list(range(NEW, NEW + TOKENS))
    for i, layer in enumerate(tensor[0].view(LAYERS, 1, TOKENS, HEADS, DIM)):
        alone = client.rope(config, layer_index=i).reposition(layer, shift=NEW - OLD, layout="bshd")
        assert torch.equal(alone.view(TOKENS, -1), found.tensor[0, i])


def test_refusals_name_the_argument_and_change_nothing(client, random):
    mover = mover_of(client, LLAMA)
    allocator = TensorMemoryAllocator(torch.zeros(1 << 20))
    plain_chunk = torch.ones(2, LAYERS, TOKENS, HEADS * DIM)
    layerwise = allocator.allocate(torch.Size([2, TOKENS, HEADS * DIM]), torch.bfloat16, MemoryFormat.KV_2TD)
    groups = allocator.allocate([plain_chunk.shape] * 2, [torch.bfloat16] * 2, MemoryFormat.KV_2LTD)
    for bad, field, places in [
        (plain_chunk, "old_start", {}),
        (plain_chunk[:, :2].contiguous(), "ropes", {"old_start": 0}),
        (plain_chunk[..., :100].contiguous(), "head_dim", {"old_start": 0}),
        (plain_chunk[:, :, ::2], "chunk", {"old_start": 0}),
        (layerwise, "chunk", {"old_start": 0}),
        (groups, "chunk", {"old_start": 0}),
    ]:
        with pytest.raises(posenc.InvalidArgumentError) as raised:
            mover.move(bad, 7, **places)
        assert raised.value.field == field
    assert (plain_chunk == 1).all()
    with pytest.raises(posenc.InvalidArgumentError, match="head_dim"):
        lmcache.Mover(client, client.rope(LLAMA), 0)


class Memory(GPUConnectorInterface):
    """Stands for a connector to an engine's memory, [2, layers, tokens, hidden]."""

    def __init__(self, kv):
        self.kv = kv

    def from_gpu(self, memory_obj, start, end, **kwargs):
        memory_obj.tensor.copy_(self.kv[:, :, start:end])

    def to_gpu(self, memory_obj, start, end, **kwargs):
        self.kv[:, :, start:end] = memory_obj.tensor

    def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
        for arguments in zip(memory_objs, starts, ends):
            self.from_gpu(*arguments)

    def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
        for arguments in zip(memory_objs, starts, ends):
            self.to_gpu(*arguments)

    def get_shape(self, num_tokens):
        return self.kv[:, :, :num_tokens].shape


def test_an_engine_of_lmcache_finds_text_at_another_offset(client, random, tmp_path):
    import tokenizers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"#": 1, "x": 2}, unk_token="x"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    # LMCache cuts a prompt at separators (token 1), and finds each part by the part's own tokens.
    config = LMCacheEngineConfig.from_defaults(local_cpu=True, max_local_cpu_size=0.1, enable_blending=True)
    shape = (LAYERS, 2, 256, HEADS, DIM)
    metadata = LMCacheMetadata(str(tmp_path), 1, 1, 0, 0, torch.bfloat16, shape)
    case, frequencies, factor = CASES["yarn"]
    first, second = list(range(10, 40)), list(range(50, 60))
    raw = random.standard_normal((LAYERS, 41, HEADS, DIM)) * factor
    keys = torch.from_numpy(rotated(raw, frequencies, 0))
    memory = Memory(torch.stack([keys, torch.randn(keys.shape)]).flatten(3).to(torch.bfloat16))
    before = memory.kv.clone()
    connector = lmcache.Connector(memory, mover_of(client, case))
    engine = LMCacheEngineBuilder.get_or_create("posenc", config, metadata, connector, print, print)
    try:
        engine.post_init()
        engine.store(torch.tensor([*first, 1, *second]))
        memory.kv.zero_()
        mask = engine.retrieve(torch.tensor([*second, 1, *first]))
        there, here = numpy.r_[0:30, 31:41], numpy.r_[11:41, 0:10]
        assert mask.nonzero().ravel().tolist() == sorted(here)
        moved = numpy.zeros_like(raw)
        moved[:, here] = raw[:, there]
        expected = rotated(moved, frequencies, 0)[:, here]
        assert error(memory.kv[0][:, here], expected) <= bound(DTYPES[torch.bfloat16])
        assert torch.equal(memory.kv[1][:, here], before[1][:, there])
        # The stored chunks have not moved. At their old offsets they still have the same bits.
        engine.retrieve(torch.tensor([*first, 1, *second]))
        assert torch.equal(memory.kv[:, :, there], before[:, :, there])
    finally:
        LMCacheEngineBuilder.destroy("posenc")


class VllmRope:
    """Stands for vLLM's rotary class, from which LMCache takes a table of cos and sin."""

    def __init__(self, head_size, max_position, rope_parameters, dtype, **options):
        angle = numpy.arange(max_position)[:, None] * plain(rope_parameters["rope_theta"])
        self.head_size = head_size
        self.cos_sin_cache = torch.from_numpy(numpy.concatenate([numpy.cos(angle), numpy.sin(angle)], 1)).to(dtype)

    def __call__(self, positions, q, k):
        cos, sin = self.cos_sin_cache[positions].double()[:, None].chunk(2, -1)
        pairs = [x.view(len(x), -1, self.head_size).double().chunk(2, -1) for x in (q, k)]
        turned = [torch.cat([x * cos - y * sin, x * sin + y * cos], -1) for x, y in pairs]
        return [x.to(q.dtype).view(q.shape) for x in turned]


@pytest.fixture
def blending(monkeypatch):
    """LMCache's own re-rotation. The module of this re-rotation imports vLLM, which this test does not need."""
    name = "vllm.model_executor.layers.rotary_embedding"
    for i in range(len(name.split("."))):
        part = ".".join(name.split(".")[: i + 1])
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    sys.modules[name].get_rope = VllmRope
    from lmcache.v1.compute import positional_encoding

    return positional_encoding


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_at_least_as_near_as_lmcaches_own_rotation(client, random, blending, dtype, capsys):
    config, frequencies, factor = CASES["plain"]
    raw, tensor = chunk(random, frequencies, factor, dtype)
    expected = rotated(raw, frequencies, NEW)
    moved = tensor.clone()
    mover_of(client, config).move(moved, NEW, old_start=OLD)
    old, new = (start + torch.arange(TOKENS) for start in (OLD, NEW))
    ours, theirs = error(moved[0], expected), {}
    for table in {torch.float32, dtype}:
        fused = blending.get_fused_rope(DIM, DIM, 131072, 5e5, dtype=table)
        theirs[table] = error(torch.stack([fused(old, new, k) for k in tensor[0].clone()]), expected)
    with capsys.disabled():
        text = "".join(f"; LMCache with a table of {table}: {worst:.2g}" for table, worst in theirs.items())
        print(f"\n{dtype} keys: largest error of posenc: {ours:.2g}{text}")
    assert ours <= min(theirs.values()) + 2.0**-22
    assert theirs[torch.float32] <= bound(DTYPES[dtype])  # both compute the same rotation


def test_lmcaches_blending_refuses_scaled_ropes(blending):
    for scaling in (LLAMA3, YARN):
        assert blending.get_fused_rope(DIM, DIM, 131072, 5e5, rope_scaling=scaling) is None
