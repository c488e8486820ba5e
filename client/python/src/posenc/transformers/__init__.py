"""Support for models of transformers: rotary modules with tables from the service, and caches whose keys move.

    model = AutoModelForCausalLM.from_pretrained(...)
    posenc.transformers.install(model, posenc.connect("localhost:50051"))
    posenc.transformers.caches.shift(cache, model.config, -2048)
"""

from . import caches as caches
from .rotary import RotaryEmbedding as RotaryEmbedding
from .rotary import install as install
