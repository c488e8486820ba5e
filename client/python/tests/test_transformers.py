"""Compares the rotary module with the modules of transformers, for configuration classes of transformers."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import posenc.transformers  # noqa: E402

# Sizes that are small enough for a test. They do not change the encoding.
SMALL = {"hidden_size": 128, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
SMALL.update(num_hidden_layers=2, vocab_size=50)


def rope(**parameters):
    return {"rope_parameters": {"rope_theta": 10000.0, **parameters}}


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": [1.0 + i for i in range(16)]}
CASES = {
    "llama": ("LlamaConfig", rope(rope_type="default")),
    "llama-3.1": ("LlamaConfig", rope(rope_type="llama3", **LLAMA3)),
    "linear": ("LlamaConfig", rope(rope_type="linear", factor=4.0)),
    "qwen2 with yarn": ("Qwen2Config", rope(**YARN)),
    "mistral": ("MistralConfig", rope(rope_type="default", rope_theta=1e6)),
    "gpt-neox, a quarter of the head": ("GPTNeoXConfig", rope(rope_type="default", partial_rotary_factor=0.25)),
    "phi3 with longrope": (
        "Phi3Config",
        {
            **rope(**LONG, original_max_position_embeddings=64),
            "max_position_embeddings": 512,
            "original_max_position_embeddings": 64,
            "pad_token_id": 0,
        },
    ),
    "dynamic ntk": ("LlamaConfig", {**rope(rope_type="dynamic", factor=2.0), "max_position_embeddings": 64}),
}


def own_module(config):
    """Returns transformers' rotary module of a model with this configuration."""
    model = transformers.AutoModelForCausalLM.from_config(config)
    return next(m for m in model.modules() if type(m).__name__.endswith("RotaryEmbedding"))


def assert_near(ours, theirs, last):
    # transformers rounds positions, frequencies and angles to float32. Each of these
    # roundings changes an angle by at most 2^-24 times the largest position.
    bound = 2.0**-21 + last * 2.0**-22
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert (ours - theirs).abs().max().item() <= bound


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", [40, 200])
def test_tables_are_those_of_transformers(client, case, length):
    name, arguments = CASES[case]
    config = getattr(transformers, name)(**{**SMALL, **arguments})
    theirs = own_module(config)
    ours = posenc.transformers.RotaryEmbedding(config, client)
    x = torch.zeros(1, 1, 1)
    ids = torch.arange(length)[None]
    for actual, expected in zip(ours(x, ids), theirs(x, ids)):
        assert_near(actual, expected, length)


def test_layers_of_gemma_3_have_tables_of_their_own(client):
    config = transformers.Gemma3TextConfig(**{**SMALL, "head_dim": 32, "num_hidden_layers": 6})
    theirs, ours = own_module(config), posenc.transformers.RotaryEmbedding(config, client)
    x, ids = torch.zeros(1, 1, 1), torch.arange(50)[None]
    tables = {}
    for layer_type in ("sliding_attention", "full_attention"):
        tables[layer_type] = ours(x, ids, layer_type)
        for actual, expected in zip(tables[layer_type], theirs(x, ids, layer_type)):
            assert_near(actual, expected, 50)
    assert not torch.equal(*(tables[t][0] for t in tables))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_gives_the_same_logits_with_it(client, dtype):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SMALL, **rope(rope_type="llama3", **LLAMA3))
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    tokens = torch.randint(0, 50, (2, 30))
    with torch.no_grad():
        before = model(tokens).logits
        assert posenc.transformers.install(model, client) == 1
        after = model(tokens).logits
    assert after.dtype == dtype
    assert (after - before).abs().max().item() <= (2e-5 if dtype == torch.float32 else 2e-2) * before.abs().max().item()


def test_a_configuration_may_be_a_rope_itself(client):
    config = transformers.LlamaConfig(**SMALL, **rope(rope_type="llama3", **LLAMA3))
    spec = client.rope(config).spec
    assert spec.rotary_dim == 32 and spec.llama3.factor == 8
