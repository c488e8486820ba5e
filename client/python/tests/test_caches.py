"""Compares posenc.transformers.caches with caches of transformers. `./run parity caches` compares all model types."""

import sys

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import posenc  # noqa: E402
from posenc.transformers import caches  # noqa: E402

sys.path.append(str(ROOT / "tests" / "parity"))
import caches as parity  # noqa: E402
import tiny  # noqa: E402


@pytest.mark.parametrize("case", parity.SAMPLE, ids=lambda case: case[0])
def test_moved_keys_are_those_of_the_class(shared, case):
    _, name, keys, arguments = case
    config = getattr(transformers, name)
    for dtype in (torch.float32, torch.bfloat16):
        moved, _, worst = parity.compare(shared, tiny.tiny(config, **keys), dtype, **arguments)
        assert moved and worst <= 1


@pytest.fixture
def shared(shared_server):
    with posenc.Client(shared_server.socket) as client:
        yield client


class Small:
    """A small model, which makes caches."""

    def __init__(self, name="LlamaConfig", **keys):
        self.config = tiny.tiny(getattr(transformers, name), num_hidden_layers=2, **keys)
        self.model = tiny.model(self.config, torch.float32)
        self.ids = torch.arange(24)[None] * 5 % 90 + 3
        self.attended = None
        self.model.layers[0].self_attn.register_forward_hook(self.attend)

    def attend(self, module, args, output):
        self.attended = output[0]

    @torch.no_grad()
    def run(self, begin, end, start=0, cache=None):
        """Computes the tokens begin to end - 1 at positions from `start` on, and returns their cache."""
        cache = transformers.DynamicCache(config=self.config) if cache is None else cache
        positions = torch.arange(start, start + end - begin)[None]
        return self.model(self.ids[:, begin:end], position_ids=positions, use_cache=True, cache=cache).cache

    def static(self):
        return transformers.StaticCache(config=self.config, max_cache_len=24)


@pytest.fixture(scope="module")
def llama():
    return Small()


@pytest.fixture(scope="module")
def sliding():
    return Small("MistralConfig", sliding_window=8)


def assert_near(ours, theirs, tokens=None):
    """Compares the keys of the first layer only, because keys of deeper layers depend on the tokens before them."""
    ours, theirs = (cache.layers[0].keys[:, :, :tokens] for cache in (ours, theirs))
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["dynamic", "static", "sliding", "static sliding"])
def test_attention_over_a_joined_cache_is_that_over_the_whole(shared, llama, sliding, kind):
    small = sliding if "sliding" in kind else llama

    def cache():
        return small.static() if "static" in kind else None

    whole = small.run(0, 20, cache=cache())
    parts = [small.run(0, 3, cache=cache()), small.run(3, 5, cache=cache()), small.run(5, 20, cache=cache())]
    before = [part.layers[0].keys.clone() for part in parts]
    joined = caches.join(parts, small.config, client=shared)
    assert int(joined.get_seq_length()) == int(whole.get_seq_length()) == 20
    assert_near(joined, whole)
    torch.testing.assert_close(joined.layers[0].values, whole.layers[0].values, rtol=0, atol=2e-5)
    assert all(torch.equal(part.layers[0].keys, keys) for part, keys in zip(parts, before))
    small.run(20, 21, start=20, cache=whole)
    expected = small.attended
    small.run(20, 21, start=20, cache=joined)
    torch.testing.assert_close(small.attended, expected, rtol=0, atol=2e-5)
    # The second layer's keys differ, because the model computed each part without the parts before it. A sliding
    # layer holds only tokens whose window lies inside the last part.
    assert "sliding" in kind or (joined.layers[1].keys - whole.layers[1].keys).abs().max() > 0.01


@pytest.mark.parametrize("static", [False, True])
def test_kept_tokens_have_the_first_positions(shared, llama, static):
    cache = llama.run(0, 20, cache=llama.static() if static else None)
    slots = [0, 1, *range(12, 20)]
    values = cache.layers[0].values[:, :, slots]
    caches.keep(cache, llama.config, slots, client=shared)
    assert int(cache.get_seq_length()) == 10
    llama.ids, ids = llama.ids[:, slots], llama.ids
    alone = llama.run(0, 10, cache=llama.static() if static else None)
    llama.ids = ids
    assert_near(cache, alone)
    assert torch.equal(cache.layers[0].values[:, :, :10], values)


@pytest.mark.parametrize("static", [False, True])
def test_a_sliding_layer_keeps_its_last_tokens(shared, sliding, static):
    cache = sliding.run(0, 20, cache=sliding.static() if static else None)
    held = cache.layers[0].keys.shape[2]
    with pytest.raises(posenc.InvalidArgumentError, match="layer 0 slides, and has dropped token 0"):
        caches.keep(cache, sliding.config, [0, 3, *range(15, 20)], client=shared)
    caches.keep(cache, sliding.config, [0, 1, *range(10, 20)], client=shared)
    assert cache.get_seq_length() == 12 and cache.layers[0].keys.shape[2] == held
    sliding.ids, ids = sliding.ids[:, [0, 1, *range(10, 20)]], sliding.ids
    alone = sliding.run(0, 12, cache=sliding.static() if static else None)
    sliding.ids = ids
    assert_near(cache, alone)
    sliding.run(20, 22, start=12, cache=cache)
    assert cache.get_seq_length() == 14


def test_a_sliding_layer_that_is_no_longer_full(shared, sliding):
    cache = sliding.run(0, 20, cache=sliding.static())
    caches.keep(cache, sliding.config, [16, 17, 18, 19], client=shared)
    sliding.run(20, 22, start=4, cache=cache)
    assert_near(cache, caches.join([sliding.run(16, 22)], sliding.config, client=shared), 6)


def test_a_server_of_the_call_itself(llama):
    cache = llama.run(0, 5)
    values = cache.layers[0].values.clone()
    caches.shift(cache, llama.config, 100)
    assert_near(cache, llama.run(0, 5, start=100))
    assert torch.equal(cache.layers[0].values, values)


def test_keys_go_in_pieces_and_as_bytes(client, llama, monkeypatch):
    monkeypatch.setattr(caches, "_PIECE", 3 * llama.run(0, 1).layers[0].keys.nbytes)
    cache = llama.run(0, 20)
    caches.keep(cache, llama.config, [0, *range(3, 20)], client=client)
    caches.shift(cache, llama.config, 7, client=client)
    llama.ids, ids = llama.ids[:, [0, *range(3, 20)]], llama.ids
    expected = llama.run(0, 18, start=7)
    llama.ids = ids
    assert_near(cache, expected)


def test_tensors_of_inference_mode(shared, llama):
    with torch.inference_mode():
        cache = llama.run(0, 5)
    caches.shift(cache, llama.config, 100, client=shared)
    assert_near(cache, llama.run(0, 5, start=100))
    caches.keep(cache, llama.config, [1, 2], client=shared)
    joined = caches.join([cache, cache], llama.config, client=shared)
    assert not joined.layers[0].keys.is_inference()


def error_of(field, function, *arguments, **options):
    with pytest.raises(posenc.InvalidArgumentError) as error:
        function(*arguments, **options)
    assert error.value.field == field
    return str(error.value)


def test_errors_name_what_is_wrong(shared, llama, sliding):
    cache, config = llama.run(0, 5), llama.config
    before = cache.layers[0].keys.clone()
    for slots in ([], [5], [2, 2], [3, 1], [-1, 0]):
        assert "tokens 0 to 4" in error_of("slots", caches.keep, cache, config, slots, client=shared)
    assert "1.5" in error_of("by", caches.shift, cache, config, 1.5, client=shared)
    both = transformers.EncoderDecoderCache(cache, transformers.DynamicCache())
    assert "self_attention_cache" in error_of("cache", caches.shift, both, config, 1, client=shared)
    assert "model.config" in error_of("config", caches.shift, cache, config.to_dict(), 1, client=shared)
    deepseek = tiny.tiny(transformers.DeepseekV3Config)
    assert "latents of 32" in error_of("cache", caches.shift, cache, deepseek, 1, client=shared)
    assert "is a list" in error_of("cache", caches.shift, [], config, 1, client=shared)
    error_of("caches", caches.join, [], config, client=shared)
    assert "layer 0" in error_of("caches[1]", caches.join, [cache, llama.run(0, 5, cache=llama.static())], config)
    full = llama.run(0, 20, cache=llama.static())
    assert "room for 24 tokens; needs 40" in error_of("caches[0]", caches.join, [full, full], config, client=shared)
    assert torch.equal(cache.layers[0].keys, before)


def test_refuses_keys_that_no_rotation_moves(shared, llama):
    cache = llama.run(0, 5)
    hunyuan = tiny.tiny(transformers.HunYuanDenseV1Config)
    assert "normalises keys" in error_of("config", caches.shift, cache, hunyuan, 1, client=shared)
    learned = tiny.tiny(transformers.MistralLarge4TextConfig)
    learned_cache = parity.Run(learned, torch.float32).cache(0)
    assert "alpha" in error_of("config", caches.shift, learned_cache, learned, 1, client=shared)
    long = tiny.tiny(transformers.Phi3Config, **parity.LONGROPE)
    run = parity.Run(long, torch.float32)
    assert "for which the keys" in error_of("length", caches.shift, run.cache(0), long, 1, client=shared)
    assert "new_length" in error_of("length", caches.shift, run.cache(0), long, 1, client=shared, new_length=5)
    hybrid = tiny.tiny(transformers.Qwen3NextConfig)
    states = parity.Run(hybrid, torch.float32).cache(0)
    for function, argument in ((caches.keep, states), (caches.join, [states])):
        rest = [[0]] if function is caches.keep else []
        assert "state has no tokens" in error_of(
            "cache" if rest else "caches[0]", function, argument, hybrid, *rest, client=shared)
    with torch.enable_grad():
        grown = llama.model(llama.ids, use_cache=True).cache
    assert "no_grad" in error_of("cache", caches.shift, grown, llama.config, 1, client=shared)


def test_the_readme_moves_a_cache(llama):
    readme = (ROOT / "client/python/README.md").read_text("utf-8")
    code = readme.partition("<!-- caches -->")[2].partition("```python\n")[2].partition("```")[0]
    names = {"posenc": posenc, "cache": llama.run(0, 5), "model": llama.model}
    exec(code, names)
    assert names["both"].get_seq_length() == 6
    assert_near(names["cache"], llama.run(0, 5, start=100))
