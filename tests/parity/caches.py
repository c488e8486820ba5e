"""caches.py [TYPE...]: moves the keys of transformers' caches, and compares them with transformers' own.

caches.py write FILE: records some keys of SAMPLE before and after the move, as the classes compute them.

For every model type whose text layers rotate, a tiny model of the real class (tiny.py) computes a cache of
the same tokens at positions from p on and from p + s on. Every layer gets the hidden states of the first
run, so that the keys of all layers differ by the rotation alone. posenc.transformers.caches.shift() moves
the first cache by s.

A pair of channels of length L, which turns by w for each position, must agree with the class's pair within

    L (w 2^-24 (p + q + (3 + |ln w|) d) + 12 u),    q = p + s

- The class rounds the angles p w and q w to float32, by up to half a step of each: 2^-24 w (p + q).
- It computes w by a power in float32, with a relative error of up to (3 + |ln w|) 2^-24. If w is
  the same at both positions, only the difference of the angles counts: d = |s|. If the length
  changes it, d = p + q.
- u is the unit roundoff of the keys' dtype, 2^-24 or 2^-8. The class rounds cosine and sine (1), their factor
  (1), both products (1) and their sum (1): 4 u L for a channel, at either position. The move
  rotates the error at the first position, so a channel may get sqrt(2) times this error. posenc rounds once:
  (4 sqrt(2) + 4 + 1) u L < 12 u L.

Channels without rotation, layers without rotation, and values must be equal bit by bit.
"""

import base64
import gzip
import inspect
import json
import re
import sys
import warnings

warnings.filterwarnings("ignore")

import bound  # noqa: E402
import library  # noqa: E402
import posenc  # noqa: E402
import tiny  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import DynamicCache, EncoderDecoderCache  # noqa: E402
from posenc.transformers import caches  # noqa: E402

TOKENS = 8
START, SHIFT = 100, 1000
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


WITH_EMBEDDINGS = {"blt_local_decoder", "qwen3_omni_moe_talker_code_predictor", "qwen3_omni_moe_talker_text"}
CODEBOOKS = {"dia_decoder": 9, "kyutai_speech_to_text": 33}


class CannotAsk(Exception):
    """A model of this class cannot be tested; the text says why."""


class Run:
    """Runs of a model whose layers and attentions all get the hidden states of the first run."""

    def __init__(self, config, dtype):
        self.config = config
        self.model = tiny.model(config, dtype)
        self.ids = torch.randint(3, 90, (2, TOKENS), generator=torch.Generator().manual_seed(1))
        self.states, self.count = {}, {}
        for name, module in self.model.named_modules():
            if re.search(r"(^|\.)\w+\.\d+$", name) or type(module).__name__.endswith("Attention"):
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: self.same_input(name, args, kwargs), with_kwargs=True)

    def same_input(self, name, args, kwargs):
        self.count[name] = self.count.get(name, 0) + 1
        at = name, self.count[name]
        if "hidden_states" in kwargs:
            return args, {**kwargs, "hidden_states": self.states.setdefault(at, kwargs["hidden_states"])}
        if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            return (self.states.setdefault(at, args[0]), *args[1:]), kwargs
        return args, kwargs

    @torch.no_grad()
    def cache(self, start):
        self.count.clear()
        takes = inspect.signature(self.model.forward).parameters
        if not takes.keys() & {"input_ids", "inputs_embeds"}:
            raise CannotAsk(f"takes {', '.join(list(takes)[:2])}, and no tokens")
        if "position_ids" not in takes:
            raise CannotAsk("takes no position_ids")
        inputs = {"position_ids": (start + torch.arange(TOKENS)).expand(2, -1)}
        if "encoder_hidden_states" in takes:
            encoder = getattr(self.config, "encoder_config", self.config)
            width = getattr(self.config, "cross_hidden_size", encoder.hidden_size)
            inputs["encoder_hidden_states"] = torch.ones(2, 4, width, dtype=self.model.dtype)
        if self.config.model_type == "blt_local_decoder":
            inputs["patch_embeds"] = torch.ones(2, TOKENS, self.config.hidden_size_global, dtype=self.model.dtype)
        if self.config.model_type == "blt_local_encoder":
            inputs.update(patch_ids=torch.zeros(2, TOKENS, dtype=torch.long), num_patches=1)
        if self.config.model_type == "idefics":
            inputs["image_encoder_embeddings"] = torch.ones(2, 1, 4, self.config.vision_config.embed_dim,
                                                            dtype=self.model.dtype)
            inputs["image_attention_mask"] = torch.ones(2, TOKENS, 1, dtype=torch.long)
        if self.config.model_type == "voxtral_realtime_text":  # takes the delay of the text as a vector
            inputs["t_cond"] = torch.ones(1, 1, self.config.hidden_size, dtype=self.model.dtype)
        if "input_ids" in takes and self.config.model_type not in WITH_EMBEDDINGS:
            inputs["input_ids"] = self.ids
            if self.config.model_type in CODEBOOKS:
                inputs["input_ids"] = self.ids[..., None].expand(-1, -1, CODEBOOKS[self.config.model_type])
        else:
            inputs["inputs_embeds"] = torch.ones(2, TOKENS, self.config.hidden_size, dtype=self.model.dtype)
        answer = self.model(**inputs, **({"use_cache": True} if "use_cache" in takes else {}))
        cache = getattr(answer, "cache", None)
        if cache is None and "cache" in takes:  # this part makes no cache itself
            self.count.clear()
            cache = DynamicCache(config=self.config)
            if "encoder_hidden_states" in takes:
                cache = EncoderDecoderCache(cache, DynamicCache())
            self.model(**inputs, cache=cache)
        cache = getattr(cache, "self_attention_cache", cache)
        if cache is None or not tensors(cache):
            raise CannotAsk("keeps no cache of transformers")
        return cache


def tensors(cache):
    """Returns every tensor of the layers that has tokens, by layer and name."""
    return {(i, name): value for i, layer in enumerate(cache.layers) for name, value in vars(layer).items()
            if isinstance(value, torch.Tensor) and value.ndim > 2}


def recorded(mover, keys, before, after, start, shift):
    """Returns the keys of the first head of two tokens, and what moves them."""
    layer, part, head_dim = next(key for key, ropes in mover._ropes.items() if ropes == (keys.rope, keys.new_rope))
    shape = [1, 1, min(2, before.shape[2]), before.shape[3]]
    text = {name: base64.b64encode(tensor[:1, :1, :2].contiguous().numpy().tobytes()).decode()
            for name, tensor in (("before", before), ("after", after))}
    return {"config_json": mover._source.config_json, "layer_index": layer, "part": part, "head_dim": head_dim,
            "lengths": mover._lengths, "start": start + keys.first, "shift": shift, "shape": shape, **text}


def compare(client, config, dtype, start=START, shift=SHIFT, record=None, **lengths):
    """Returns (tensors that rotate, layers that do not, largest difference in units of the bound).

    record: a list that gets the keys of each encoding.
    """
    run = Run(config, dtype)
    cache, expected = run.cache(start), run.cache(start + shift)
    before = {at: tensor.clone() for at, tensor in tensors(cache).items()}
    caches.shift(cache, config, shift, client=client, start=start, **lengths)
    after, expected = tensors(cache), tensors(expected)
    worst, moved, encodings = 0.0, set(), []
    with caches._mover(client, config, lengths.get("length"), lengths.get("new_length")) as mover:
        for keys in mover.keys_of(cache):
            at = next(at for at, tensor in after.items() if tensor.data_ptr() == keys.tensor.data_ptr())
            moved.add(at)
            if torch.equal(before[at], expected[at]):
                raise CannotAsk(f"layer {at[0]} has the same {at[1]} at both positions")
            theirs = expected[at].reshape(keys.tensor.shape)
            rope, changed = keys.new_rope or keys.rope, keys.new_rope is not None
            unit = bound.UNIT[str(dtype).removeprefix("torch.")]
            ours, theirs = (tensor.double().numpy() for tensor in (keys.tensor, theirs))
            worst = max(worst, bound.ratio(ours, theirs, unit, rope.resolved, start, shift, changed))
            if record is not None and rope.resolved not in encodings:
                encodings.append(rope.resolved)
                record.append(recorded(mover, keys, before[at].reshape(keys.tensor.shape),
                                       expected[at].reshape(keys.tensor.shape), start, shift))
    for at in after.keys() - moved:
        if not torch.equal(after[at], before[at]):
            raise AssertionError(f"layer {at[0]}: {at[1]} has changed")
        if not torch.equal(after[at], expected[at]):
            raise AssertionError(f"layer {at[0]}: {at[1]} depends on the position in the class")
    if not moved:
        raise CannotAsk("no layer of the tiny model rotates")
    return len(moved), len({i for i, _ in after} - {i for i, _ in moved}), worst


# Types without text, and types with a model that needs more input than tokens.
CODEC = "an encoder or decoder of sound, without text"
REASONS = {
    "clvp_encoder": CODEC,
    "dots3_note_audio_encoder": CODEC,
    "esm": "an encoder of proteins, without a cache",
    "esmc": "an encoder of proteins, without a cache",
    "mimi": CODEC,
    "mimi_decoder": CODEC,
    "pe_audio_video_encoder": CODEC + "; needs the package timm",
    "pe_video_encoder": "an encoder of video, without text; needs the package timm",
    "pocket_tts_audio_tokenizer": CODEC,
    "pocket_tts_audio_tokenizer_decoder": CODEC,
    "t5gemma2_text": "an encoder, without a cache",
}

# Parts that the client refuses: no rotation moves their keys, or their layers hold no plain keys.
REFUSED = {"deepseek_v4", "hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "mistral_large4_text",
           "qwen4_exp_text", "unlimited_ocr_text"}

LLAMA = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0}
SHORT, LONG = [1 + 0.01 * i for i in range(48)], [1.5 + 0.25 * i for i in range(48)]
LONGROPE = {"max_position_embeddings": 2048, "original_max_position_embeddings": 64, "rope_parameters": {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT, "long_factor": LONG, "factor": 32.0,
    "original_max_position_embeddings": 64}}
# Arguments of compare(): positions below and above a length of 64, and moves across it.
# transformers chooses the frequencies by the last position of a call.
BELOW = {"start": 5, "shift": 40, "length": 64}
ABOVE = {"start": 100, "shift": 900, "length": 108, "new_length": 1008}
OVER = {"start": 5, "shift": 900, "length": 13, "new_length": 913}
BACK = {"start": 905, "shift": -900, "length": 913, "new_length": 13}


def scaled(original=64, **keys):
    return {"max_position_embeddings": 2048, "rope_parameters": {
        "rope_theta": 10000.0, "original_max_position_embeddings": original, **keys}}


DYNAMIC = {**scaled(rope_type="dynamic", factor=2.0), "max_position_embeddings": 64}

# (name, model type, keys, arguments of compare()).
VARIANTS = [
    ("llama, linear", "llama", scaled(rope_type="linear", factor=4.0), {}),
    ("llama, llama3", "llama", scaled(**LLAMA), {}),
    ("llama, yarn", "llama", scaled(**YARN), {}),
    ("llama, yarn, attention_factor", "llama", scaled(**YARN, attention_factor=0.75), {}),
    ("deepseek_v3, yarn, mscale", "deepseek_v3", scaled(**YARN, mscale=0.707, mscale_all_dim=1.0), {}),
    ("deepseek_v3, not interleaved", "deepseek_v3", {"rope_interleave": False}, {}),
    ("llama, dynamic, below", "llama", DYNAMIC, BELOW),
    ("llama, dynamic, above", "llama", DYNAMIC, ABOVE),
    ("llama, dynamic, over", "llama", DYNAMIC, OVER),
    ("phi3, longrope, below", "phi3", LONGROPE, BELOW),
    ("phi3, longrope, above", "phi3", LONGROPE, ABOVE),
    ("phi3, longrope, over", "phi3", LONGROPE, OVER),
    ("phi3, longrope, back", "phi3", LONGROPE, BACK),
    ("qwen2, a half", "qwen2", scaled(rope_type="default", partial_rotary_factor=0.5), {}),
]


# (name, class, keys, arguments of compare()).
SAMPLE = [
    ("llama", "LlamaConfig", {}, {}),
    ("llama, dynamic NTK", "LlamaConfig", DYNAMIC, OVER),
    ("gemma3: two bases", "Gemma3TextConfig", {}, {}),
    ("smollm3: layers without rope", "SmolLM3Config", {}, {}),
    ("llama4: interleaved, chunks", "Llama4TextConfig", {}, {}),
    ("glm4: a half, interleaved", "Glm4Config", {}, {}),
    ("gpt_neox: a quarter", "GPTNeoXConfig", {}, {}),
    ("gpt_oss: yarn", "GptOssConfig", {}, {}),
    ("phi3: longrope, over its switch", "Phi3Config", LONGROPE, OVER),
    ("qwen2_vl: three axes", "Qwen2VLTextConfig", {}, {}),
    ("deepseek_v32: latents and an indexer", "DeepseekV32Config", {}, {}),
    ("qwen3_next: recurrent layers", "Qwen3NextConfig", {}, {}),
]


def write(path):
    found = []
    with posenc.local() as client:
        for name, cls, keys, arguments in SAMPLE:
            keys_of_case = []
            config = tiny.tiny(getattr(transformers, cls), **keys)
            moved, _, worst = compare(client, config, torch.float32, record=keys_of_case, **arguments)
            assert moved and worst <= 1, name
            found += [{"name": name, **one} for one in keys_of_case]
    lines = "".join(json.dumps(one) + "\n" for one in found)
    with open(path, "wb") as file:
        file.write(gzip.compress(lines.encode(), mtime=0))
    print(f"{path}: {len(found)} tensors of transformers {transformers.__version__}")


def cases(names):
    """Yields (name, model types, configuration's class, its keys, arguments of compare())."""
    seen = {}
    for model_type in library.types():
        try:
            config = library.config_of({"model_type": model_type, **library.SWITCHES.get(model_type, {})})
            found = library.part_of(config)
        except Exception as error:  # every exception of the library is its answer
            yield model_type, [model_type], None, str(error), {}
            continue
        if found:
            seen.setdefault(type(found[1]), []).append(model_type)
    by_name = {cls.model_type: (cls, types) for cls, types in seen.items()}
    for name, (cls, types) in by_name.items():
        if not names or name in names or set(types) & set(names):
            yield name, types, cls, library.SWITCHES.get(name, {}), {}
    for name, model_type, keys, arguments in VARIANTS:
        if not names or "variants" in names:
            yield name, [], by_name[model_type][0], keys, arguments


def row(client, name, cls, keys, arguments):
    """Prints a line for each dtype; returns the outcome."""
    outcome = "agrees"
    for dtype_name, dtype in DTYPES.items():
        try:
            if cls is None:
                raise CannotAsk(f"has no default configuration: {keys}")
            moved, still, worst = compare(client, tiny.tiny(cls, **keys), dtype, **arguments)
            outcome = outcome if worst <= 1 else "differs"
            if name in REASONS.keys() | REFUSED:
                outcome, why = "fails", "can be asked: its reason in this file is old"
                break
            print(f"{name:32} {dtype_name:9} {moved:3} + {still:<3} {worst:9.3f}", flush=True)
            continue
        except CannotAsk as error:
            outcome, why = "cannot be asked", error
        except posenc.InvalidArgumentError as error:
            outcome, why = "refused" if name in REFUSED else "fails", error
        except Exception as error:
            outcome = "cannot be asked" if name in REASONS else "fails"
            why = REASONS.get(name, f"{type(error).__name__}: {error}")
        break
    if outcome not in ("agrees", "differs"):
        print(f"{name:32} {outcome}: {' '.join(str(why).split())[:220]}", flush=True)
    return outcome


def main(*names):
    if names[:1] == ("write",):
        return write(names[1])
    outcomes = {}
    print(f"{'type':32} {'dtype':9} moved + still, largest difference / bound", flush=True)
    with posenc.local() as client:
        for name, types, cls, keys, arguments in cases(names):
            outcomes.setdefault(row(client, name, cls, keys, arguments), []).append(set(types))
    for outcome, found in outcomes.items():
        print(f"{outcome}: {len(found)} parts and variants, of {len(set().union(*found))} model types")
    return bool(outcomes.keys() & {"differs", "fails"})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
