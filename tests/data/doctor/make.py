"""Writes the pairs of tests/data/doctor: ID/bad and ID/good, which differ in the
one key of the fix.

    python3 tests/data/doctor/make.py

Each folder holds the files of a model. A file `command` in a folder has further
arguments, one per line.
"""

import copy
import json
import math
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).parent

F32, U32, STRING, ARRAY, I32, BOOL = 6, 4, 8, 9, 5, 7


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, it):
    if kind == F32:
        return struct.pack("<If", F32, it)
    if kind == U32:
        return struct.pack("<II", U32, it)
    if kind == BOOL:
        return struct.pack("<I?", BOOL, it)
    if kind == STRING:
        return struct.pack("<I", STRING) + text(it)
    return struct.pack("<IIQ", ARRAY, I32, len(it)) + struct.pack(f"<{len(it)}i", *it)


def gguf(keys, tensors=None, version=3):
    """keys: {name: (type, value)}; tensors: {name: (shape, floats)}, fastest extent first."""
    tensors = tensors or {}
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, (kind, it) in keys.items():
        out += text(name) + value(kind, it)
    offset, data = 0, b""
    for name, (shape, floats) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", 0, offset)
        raw = struct.pack(f"<{len(floats)}f", *floats)
        raw += b"\0" * (-len(raw) % 32)
        data += raw
        offset += len(raw)
    return out + b"\0" * (-len(out) % 32) + data


def safetensors(tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    return struct.pack("<Q", len(raw)) + raw + data


def f32(values):
    return "F32", [len(values)], struct.pack(f"<{len(values)}f", *values)


def bf16(values):
    raw = b""
    for one in values:
        bits = struct.unpack("<I", struct.pack("<f", one))[0]
        raw += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return "BF16", [len(values)], raw


def inv_freq(base, pairs, factor=1.0):
    return [base ** (-i / pairs) / factor for i in range(pairs)]


def llama3_factors(base, pairs, factor, low, high, original):
    out = []
    for w in inv_freq(base, pairs):
        wavelength = 2 * math.pi / w
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def with_keys(config, **more):
    out = copy.deepcopy(config)
    for key, it in more.items():
        if it is None:
            out.pop(key, None)
        else:
            out[key] = it
    return out


# The width of this model differs from the widths of all presets.
PLAIN = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "head_dim": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SCALED = with_keys(PLAIN, rope_scaling=YARN)

PAIRS = {}


def pair(name, bad, good, both=None):
    """bad and good: a config, or files by name; both: files for both folders."""
    files = []
    for it in (bad, good):
        folder = dict(both or {})
        if it is not None and not any("." in key for key in it) and "command" not in it:
            it = {"config.json": it}
        folder.update(it or {})
        files.append(folder)
    PAIRS[name] = files


def command(*words):
    return {"command": "\n".join(words) + "\n"}


def configs():
    new = {"rope_type": "default", "rope_theta": 500000.0}
    pair(
        "config.new-spelling-only",
        with_keys(PLAIN, rope_theta=None, rope_parameters=new),
        with_keys(PLAIN, rope_parameters=new),
    )
    both = with_keys(PLAIN, rope_scaling=YARN, rope_parameters=with_keys(YARN, factor=2.0))
    pair("config.both-spellings", both, with_keys(both, rope_parameters=None))
    conflict = with_keys(PLAIN, rope_theta=10000.0, rope_parameters=new)
    pair("config.theta-conflict", conflict, with_keys(conflict, rope_theta=500000.0))
    qwen = with_keys(PLAIN, model_type="qwen2", rope_theta=1000000.0)
    pair("config.theta-absent", with_keys(qwen, rope_theta=None), qwen)
    qwen3 = with_keys(qwen, model_type="qwen3", head_dim=128, hidden_size=1024)
    both_types = with_keys(qwen3, rope_scaling=with_keys(YARN, type="linear"))
    pair("config.type-conflict", both_types, with_keys(qwen3, rope_scaling=YARN))
    pair("config.type-missing", with_keys(PLAIN, rope_scaling=with_keys(YARN, rope_type=None)), SCALED)
    unknown = with_keys(YARN, rope_type="telechat3-yarn")
    pair("config.type-unknown", with_keys(PLAIN, rope_scaling=unknown), SCALED)
    pair("config.key-unread", with_keys(PLAIN, rope_scaling=with_keys(YARN, low_freq_factor=1.0)), SCALED)
    flat = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}
    sliding = {"rope_type": "default", "rope_theta": 10000.0}
    gemma = with_keys(PLAIN, model_type="gemma3_text", num_hidden_layers=6, sliding_window=1024, rope_theta=None)
    pair(
        "config.dict-dropped",
        with_keys(gemma, rope_parameters=flat),
        with_keys(gemma, rope_parameters={"full_attention": flat, "sliding_attention": sliding}),
    )
    nomic = with_keys(PLAIN, model_type="nomic_bert", rope_theta=None)
    pair("config.warned", with_keys(nomic, rotary_emb_base=10000.0), with_keys(nomic, rope_theta=10000.0))
    twice = json.dumps(PLAIN, indent=1).replace("{", '{\n "rope_theta": 10000.0,', 1) + "\n"
    pair("config.key-twice", {"config.json": twice}, PLAIN)
    pair("config.factor-ratio", with_keys(SCALED, max_position_embeddings=65536), SCALED)
    pair(
        "config.original-absent",
        with_keys(PLAIN, rope_scaling=with_keys(YARN, original_max_position_embeddings=None)),
        SCALED,
    )
    pair("config.length-not-raised", with_keys(SCALED, max_position_embeddings=32768), SCALED)
    pair(
        "config.tokenizer-length",
        {"tokenizer_config.json": {"model_max_length": 2048}},
        {"tokenizer_config.json": {"model_max_length": 131072}},
        {"config.json": PLAIN},
    )
    linear = {"rope_type": "linear", "factor": 0.25}
    pair(
        "config.factor-below-one",
        with_keys(PLAIN, rope_scaling=linear),
        with_keys(PLAIN, rope_scaling=with_keys(linear, factor=4.0)),
    )
    long_lists = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
    }
    longrope = with_keys(
        PLAIN, model_type="phi3", head_dim=16, hidden_size=128, original_max_position_embeddings=4096
    )
    switch = with_keys(longrope, rope_scaling=long_lists)
    pair("config.longrope-switch", switch, with_keys(switch, max_position_embeddings=4096))
    short = with_keys(long_lists, long_factor=[4.0] * 7)
    pair("config.longrope-lengths", with_keys(longrope, rope_scaling=short), switch)
    dynamic = with_keys(PLAIN, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    pair(
        "config.dynamic-ntk",
        dynamic,
        with_keys(dynamic, rope_scaling={"rope_type": "linear", "factor": 2.0}),
    )
    glm = with_keys(PLAIN, model_type="glm")
    pair("config.partial-default", glm, with_keys(glm, partial_rotary_factor=0.5))
    partial = with_keys(PLAIN, model_type="stablelm", partial_rotary_factor=0.25, rotary_pct=0.5)
    pair("config.partial-conflict", partial, with_keys(partial, rotary_pct=None))
    derived = with_keys(PLAIN, hidden_size=640, head_dim=None)
    pair("config.head-dim-derived", derived, with_keys(derived, head_dim=64))
    layers = with_keys(
        PLAIN,
        model_type="gemma3_text",
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        sliding_window=512,
        sliding_window_pattern=2,
    )
    pair("config.layers-differ", layers, with_keys(layers, rope_local_base_freq=1000000.0))
    sections = with_keys(
        PLAIN,
        model_type="qwen2_vl",
        head_dim=128,
        hidden_size=1024,
        rope_theta=1000000.0,
        rope_scaling=with_keys(YARN, mrope_section=[16, 24, 24]),
    )
    pair(
        "config.sections",
        with_keys(sections, rope_scaling=YARN),
        sections,
    )
    published = json.loads((HERE / "../../../core/interpretation/presets/llama-3.2-1b.json").read_text())
    other = copy.deepcopy(published)
    other["rope_scaling"]["factor"] = 8.0
    pair("config.unlike-published", other, published)


def readers():
    ramp = with_keys(SCALED, rope_scaling=with_keys(YARN, truncate=False, factor=32.0,
                                                    original_max_position_embeddings=4096))
    pair(
        "readers.frequencies",
        ramp,
        with_keys(ramp, rope_scaling=with_keys(ramp["rope_scaling"], truncate=True)),
    )
    amplitude = with_keys(SCALED, rope_scaling=with_keys(YARN, attention_factor=1.0))
    pair("readers.amplitude", amplitude, SCALED)
    latent = with_keys(
        PLAIN,
        model_type="deepseek_v2",
        head_dim=None,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        rope_theta=10000.0,
        rope_scaling=with_keys(YARN, factor=40.0, original_max_position_embeddings=4096,
                               mscale=0.707, mscale_all_dim=0.707),
        max_position_embeddings=163840,
    )
    pair("readers.softmax", latent,
         with_keys(latent, rope_scaling=with_keys(latent["rope_scaling"], mscale_all_dim=None)))
    # mlx-lm's class of MiniCPM 3 has no default for an absent qk_rope_head_dim.
    small = with_keys(PLAIN, model_type="minicpm3", head_dim=None, qk_rope_head_dim=32, qk_nope_head_dim=64)
    pair("readers.refuses", with_keys(small, qk_rope_head_dim=None), small)
    images = with_keys(
        PLAIN,
        model_type="qwen2_vl",
        head_dim=128,
        hidden_size=1024,
        rope_theta=1000000.0,
        rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
    )
    pair("readers.axes", None, {"command": "--reader\nvllm\n"}, {"config.json": images})
    pair("readers.pairing",
         with_keys(PLAIN, model_type="glm", partial_rotary_factor=0.5),
         with_keys(PLAIN, model_type="glm", partial_rotary_factor=1.0))
    sparse = with_keys(PLAIN, model_type="deepseek_v32", qk_rope_head_dim=64, qk_nope_head_dim=128, head_dim=None)
    pair("readers.indexer", with_keys(sparse, indexer_rope_interleave=True), sparse)
    pair(
        "readers.version",
        command("--reader", "vllm@99.0"),
        command("--reader", "vllm@0.20"),
        {"config.json": PLAIN},
    )


def params():
    config = {
        "model_type": "ministral3",
        "hidden_size": 512,
        "num_attention_heads": 8,
        "head_dim": 64,
        "num_hidden_layers": 4,
        "max_position_embeddings": 262144,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
    }
    native = {
        "dim": 512,
        "n_heads": 8,
        "n_layers": 4,
        "head_dim": 64,
        "rope_theta": 1000000.0,
        "yarn": {
            "original_max_position_embeddings": 16384,
            "factor": 16,
            "apply_scale": False,
            "beta": 32,
            "alpha": 1,
        },
    }
    good = with_keys(config, rope_parameters=with_keys(config["rope_parameters"], attention_factor=1.0))
    pair("params.config-differs", {"config.json": config}, {"config.json": good}, {"params.json": native})


def tables():
    config = {"config.json": with_keys(PLAIN, head_dim=16, hidden_size=128, rope_theta=10000.0)}
    name = "model.layers.{}.self_attn.rotary_emb.inv_freq"
    good = safetensors({name.format(i): f32(inv_freq(10000.0, 8)) for i in range(4)})
    pair(
        "tables.inv-freq-differs",
        {"model.safetensors": safetensors({name.format(i): f32(inv_freq(1000000.0, 8)) for i in range(4)})},
        {"model.safetensors": good},
        config,
    )
    pair(
        "tables.inv-freq-rounded",
        {"model.safetensors": safetensors({name.format(i): bf16(inv_freq(10000.0, 8)) for i in range(4)})},
        {"model.safetensors": good},
        config,
    )
    broken = [inv_freq(10000.0, 8) for _ in range(4)]
    broken[1][0] = 6.9e-18
    pair(
        "tables.inv-freq-layers",
        {"model.safetensors": safetensors({name.format(i): f32(broken[i]) for i in range(4)})},
        {"model.safetensors": good},
        config,
    )
    alone = inv_freq(10000.0, 21)
    name = "blocks.0.attn.rope.rope.freqs"
    pair(
        "tables.inv-freq-alone",
        {"model.safetensors": safetensors({name: f32([2.0, *alone[1:]])})},
        {"model.safetensors": safetensors({name: f32(alone)})},
    )


def ggufs():
    def keys(architecture, head=64, base=500000.0, length=131072, **more):
        out = {
            "general.architecture": (STRING, architecture),
            f"{architecture}.context_length": (U32, length),
            f"{architecture}.block_count": (U32, 4),
            f"{architecture}.embedding_length": (U32, 8 * head),
            f"{architecture}.attention.head_count": (U32, 8),
            f"{architecture}.rope.dimension_count": (U32, head),
            f"{architecture}.rope.freq_base": (F32, base),
        }
        for key, it in more.items():
            full = f"{architecture}.rope.{key.replace('__', '.')}"
            if it is None:
                out.pop(full, None)
            else:
                out[full] = it
        return out

    def add(name, config, bad, good):
        pair(name, {"model.gguf": bad}, {"model.gguf": good}, {"config.json": config})

    plain = gguf(keys("llama"))
    add("gguf.freq-base", PLAIN, gguf(keys("llama", freq_base=None)), plain)
    yarn = dict(
        scaling__type=(STRING, "yarn"),
        scaling__factor=(F32, 4.0),
        scaling__original_context_length=(U32, 32768),
    )
    qwen = with_keys(SCALED, model_type="qwen3_moe")
    scaled = gguf(keys("qwen3moe", **yarn))
    add("gguf.scaling-missing", qwen, gguf(keys("qwen3moe")), scaled)
    add("gguf.scaling-type-missing", qwen,
        gguf(keys("qwen3moe", **{k: v for k, v in yarn.items() if k != "scaling__type"})), scaled)
    add("gguf.original-length", qwen,
        gguf(keys("qwen3moe", **{k: v for k, v in yarn.items() if "original" not in k})), scaled)
    llama3 = with_keys(PLAIN, rope_scaling=with_keys(LLAMA3, factor=32.0))
    freqs = {"rope_freqs.weight": ([32], llama3_factors(500000.0, 32, 32.0, 1.0, 4.0, 8192))}
    wrong = {"rope_freqs.weight": ([32], llama3_factors(500000.0, 32, 8.0, 1.0, 4.0, 8192))}
    add("gguf.factor-tensors", llama3, gguf(keys("llama"), wrong), gguf(keys("llama"), freqs))
    add("gguf.amplitude", qwen, gguf(keys("qwen3moe", scaling__attn_factor=(F32, 0.5), **yarn)), scaled)
    add("gguf.yarn-ext-factor", qwen,
        gguf(keys("grok", scaling__yarn_ext_factor=(F32, 0.5), **yarn)),
        gguf(keys("grok", scaling__yarn_ext_factor=(F32, 1.0), **yarn)))
    partial = with_keys(PLAIN, model_type="stablelm", partial_rotary_factor=0.25)
    add("gguf.dimension-count", partial, gguf(keys("stablelm", dimension_count=None)),
        gguf(keys("stablelm", dimension_count=(U32, 16))))
    sections = with_keys(
        PLAIN,
        model_type="qwen2_vl",
        head_dim=128,
        hidden_size=1024,
        rope_theta=1000000.0,
        rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
    )
    add("gguf.sections", sections,
        gguf(keys("qwen2vl", 128, 1000000.0, dimension_sections=(ARRAY, [16, 24, 20, 0]))),
        gguf(keys("qwen2vl", 128, 1000000.0, dimension_sections=(ARRAY, [16, 24, 24, 0]))))
    layers = with_keys(
        PLAIN,
        model_type="gemma3_text",
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        sliding_window=512,
        sliding_window_pattern=2,
    )
    add("gguf.swa", layers,
        gguf(keys("gemma3", 64, 1000000.0, freq_base_swa=(F32, 1000000.0))),
        gguf(keys("gemma3", 64, 1000000.0, freq_base_swa=(F32, 10000.0))))
    linear = with_keys(PLAIN, rope_scaling={"rope_type": "linear", "factor": 4.0})
    tiny = {"config.json": with_keys(PLAIN, hidden_size=64, head_dim=8)}
    rows = [[round(math.sin(8 * r + c), 3) for c in range(4)] for r in range(8)]
    permuted = [rows[r // 2 + 4 * (r % 2)] for r in range(8)]
    flat = [x for row in rows for x in row]
    q_proj = ("F32", [8, 4], struct.pack("<32f", *flat))
    tiny["model.safetensors"] = safetensors({"model.layers.0.self_attn.q_proj.weight": q_proj})

    def with_query(order):
        return gguf(keys("llama", 8), {"blk.0.attn_q.weight": ([4, 8], [x for row in order for x in row])})

    pair("gguf.pairing", {"model.gguf": with_query(rows)}, {"model.gguf": with_query(permuted)}, tiny)
    add("gguf.other-loaders", linear,
        gguf(keys("llama", scaling__type=(STRING, "linear"), scaling__factor=(F32, 4.0))), plain)
    add("gguf.key-type", PLAIN, gguf(keys("llama", freq_base=(U32, 500000))), plain)
    add("gguf.rope-switch", with_keys(PLAIN, model_type="granite"),
        gguf(keys("granite", scaling__finetuned=(BOOL, False))),
        gguf(keys("granite", scaling__finetuned=(BOOL, True))))
    add("gguf.unknown-architecture", PLAIN, gguf(keys("nobodys")), plain)


def runtimes():
    config = {"config.json": with_keys(SCALED, rope_theta=1000000.0)}

    override = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}
    with_base = {"rope_parameters": with_keys(override["rope_parameters"], rope_theta=1000000.0)}
    pair(
        "runtime.override-drops-theta",
        command("--runtime", f"vllm serve m --hf-overrides '{json.dumps(override)}'"),
        command("--runtime", f"vllm serve m --hf-overrides '{json.dumps(with_base)}'"),
        config,
    )
    pair(
        "runtime.flag-gone",
        command("--runtime", f"vllm serve m --rope-scaling '{json.dumps(YARN)}'"),
        command("--runtime", f"vllm serve m --hf-overrides '{json.dumps(with_base)}'"),
        config,
    )
    pair(
        "runtime.flag-unread",
        command("--runtime", "llama-server -m m.gguf --rope-scaling yarn --yarn-attn-factor 1.2"),
        command("--runtime", "llama-server -m m.gguf --rope-scaling yarn --yarn-orig-ctx 32768"),
        config,
    )
    pair(
        "runtime.length-beyond",
        command("--runtime", "vllm serve m --max-model-len 262144"),
        command("--runtime", "vllm serve m --max-model-len 131072"),
        {"config.json": PLAIN},
    )


def main():
    for build in (configs, readers, params, tables, ggufs, runtimes):
        build()
    for old in HERE.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    for name, folders in PAIRS.items():
        for kind, files in zip(("bad", "good"), folders):
            folder = HERE / name / kind
            folder.mkdir(parents=True)
            for file, content in files.items():
                if isinstance(content, dict):
                    content = json.dumps(content, indent=1) + "\n"
                if isinstance(content, str):
                    content = content.encode()
                (folder / file).write_bytes(content)


main()
