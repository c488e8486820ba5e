"""caches.py [TYPE...]: moves the keys of transformers' caches, and compares them with transformers' own.

For every model type whose text layers rotate, a tiny model of the real class (tiny.py) computes a cache of
the same tokens at positions from p on and from p + s on. Every layer gets the hidden states of the first
run, so that the keys of all layers differ by the rotation alone. posenc.transformers.caches.shift() moves
the first cache by s.

A pair of channels of length L, which turns by w for each position, must agree with the class's within

    L (w 2^-24 (2 p + (4 + |ln w|) s) + 12 u)

- The class rounds the angles p w and (p + s) w to float32, by up to half a step of each: 2^-24 w (2 p + s).
- Its w is a float32 number, by a power in float32: relatively up to (3 + |ln w|) 2^-24 off, and the keys
  move by s w.
- u is the unit roundoff of the keys' dtype, 2^-24 or 2^-8. The class rounds cosine and sine (1), their factor
  (1), both products (1) and their sum (1): 4 u L for a channel, at either position. The first one's error is
  rotated, so that a channel has up to sqrt(2) times it; posenc rounds once: (4 sqrt(2) + 4 + 1) u L < 12 u L.

Channels without rotation, layers without it, and values must be equal bit by bit.
"""

import math
import sys
import warnings

warnings.filterwarnings("ignore")

import library  # noqa: E402
import posenc  # noqa: E402
import posenc.transformers  # noqa: E402
import tiny  # noqa: E402
import torch  # noqa: E402

TOKENS = 8
START, SHIFT = 100, 1000
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class CannotAsk(Exception):
    """The class does not answer the question; the text says why."""


def decoder_layers(model, config):
    """Returns the modules of the layers."""
    for module in model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == config.num_hidden_layers:
            return module
    raise CannotAsk("has no list of num_hidden_layers layers")


class Run:
    """Runs of a model whose layers all get the hidden states of the first run."""

    def __init__(self, config, dtype):
        self.config = config
        self.model = tiny.model(config, dtype)
        self.ids = torch.randint(3, 90, (2, TOKENS), generator=torch.Generator().manual_seed(1))
        self.states = {}
        for i, layer in enumerate(decoder_layers(self.model, config)):
            layer.register_forward_pre_hook(
                lambda module, args, kwargs, i=i: self.same_input(i, args, kwargs), with_kwargs=True)

    def same_input(self, i, args, kwargs):
        if args:
            return (self.states.setdefault(i, args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self.states.setdefault(i, kwargs["hidden_states"])}

    @torch.no_grad()
    def cache(self, start):
        positions = (start + torch.arange(TOKENS)).expand(2, -1)
        answer = self.model(input_ids=self.ids, position_ids=positions, use_cache=True)
        cache = getattr(answer, "cache", None)
        if cache is None:
            cache = getattr(answer, "past_key_values", None)
        if cache is None:
            raise CannotAsk("keeps no cache")
        return cache


def in_pairs(keys, spec, head_dim):
    """Returns (first and second channels of the rotated pairs, the other channels)."""
    width = spec.rotary_dim
    begin = head_dim - width if spec.slice == posenc.messages.RotarySlice.TRAILING else 0
    rotated = keys[..., begin: begin + width].double()
    rest = torch.cat([keys[..., :begin], keys[..., begin + width:]], -1)
    pairing = spec.output_pairing or spec.pairing
    if pairing == posenc.messages.Pairing.HALF_SPLIT:
        return rotated.chunk(2, -1), rest
    return (rotated[..., 0::2], rotated[..., 1::2]), rest


def ratio(moved, expected, rope, start, shift):
    """Returns the largest difference, in units of the bound."""
    spec = rope.spec
    ours, rest = in_pairs(moved, spec, moved.shape[-1])
    theirs, other = in_pairs(expected, spec, moved.shape[-1])
    if not torch.equal(rest, other):
        return math.inf
    length = torch.hypot(*theirs)
    w = torch.tensor(rope.resolved.inv_freq, dtype=torch.float64).abs()
    u = torch.finfo(moved.dtype).eps / 2
    p = (start + torch.arange(moved.shape[2], dtype=torch.float64))[:, None]
    angle = w * 2.0 ** -24 * (2 * p + (4 + w.clamp(min=1e-30).log().abs()) * abs(shift))
    bound = length * (angle + 12 * u) + 1e-30
    return max(((a - b).abs() / bound).max().item() for a, b in zip(ours, theirs))


def compare(client, config, dtype, start=START, shift=SHIFT, **lengths):
    """Returns (layers that rotate, layers that do not, largest difference in units of the bound)."""
    run = Run(config, dtype)
    cache, expected = run.cache(start), run.cache(start + shift)
    before = [None if layer.keys is None else (layer.keys.clone(), layer.values.clone())
              for layer in posenc.transformers.caches._layers(cache, "cache")]
    posenc.transformers.caches.shift(cache, config, shift, client=client, start=start, **lengths)
    worst, rotating, still = 0.0, 0, 0
    new = lengths.get("new_length", lengths.get("length"))
    for i, (own, layer, wanted) in enumerate(zip(before, cache.layers, expected.layers)):
        if own is None:
            continue
        if not (torch.equal(layer.values, own[1]) and torch.equal(layer.values, wanted.values)):
            raise AssertionError(f"layer {i}: the values differ")
        rope = client.rope(config, layer_index=i, head_dim=layer.keys.shape[-1], sequence_length=new)
        if rope.spec.nope:
            still += 1
            if not (torch.equal(layer.keys, own[0]) and torch.equal(layer.keys, wanted.keys)):
                raise AssertionError(f"layer {i} should not rotate, but its class rotates it")
            continue
        rotating += 1
        if torch.equal(own[0], wanted.keys):
            raise CannotAsk(f"layer {i} has the same keys at both positions")
        worst = max(worst, ratio(layer.keys, wanted.keys, rope, start, shift))
    return rotating, still, worst


def cases(names):
    """Yields (name, configuration's class, keys of it, arguments of compare())."""
    seen = {}
    for model_type, config, path in library.rotating(names or None):
        for key in path:
            config = getattr(config, key)
        seen.setdefault(type(config), []).append(model_type)
    for cls, types in seen.items():
        yield cls.model_type, cls, {}, {}


def main(*names):
    bad = []
    with posenc.local() as client:
        for name, cls, keys, arguments in cases(names):
            for dtype_name, dtype in DTYPES.items():
                try:
                    rotating, still, worst = compare(client, tiny.tiny(cls, **keys), dtype, **arguments)
                    text = f"{rotating} + {still}"
                    print(f"{name:32} {dtype_name:9} {text:8} {worst:.3f}", flush=True)
                except Exception as error:
                    print(f"{name:32} {dtype_name:9} {type(error).__name__}: {str(error)[:150]!r}", flush=True)
                    break


if __name__ == "__main__":
    main(*sys.argv[1:])
