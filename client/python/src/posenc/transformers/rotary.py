"""Rotary modules for transformers, with tables from the service.

    model = AutoModelForCausalLM.from_pretrained(...)
    posenc.transformers.install(model, posenc.connect("localhost:50051"))

A module is called in the same way as transformers' modules: module(x, position_ids). It
returns cos and sin, each [B, S, rotary_dim], with x's dtype on x's device. The
values are those of the formula, rounded to float32 and then to x's dtype. The
library transformers rounds the angles to float32, which causes an error of up to
0.004 at position 100,000.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from ..client import Client
from ..errors import invalid
from ..messages import ResolveRopeResponse, RopeSource, RopeSpec
from ..sources import rope_source

# Minimum number of rows of a table. The number is doubled until it covers all
# positions.
_ROWS = 4096


class RotaryEmbedding(torch.nn.Module):
    """A drop-in replacement for LlamaRotaryEmbedding and similar classes.

    config: the model's configuration.
    layer_type: the default layer type of calls, for models with different layers (Gemma 3).
    Positions are integers of at least 0.
    """

    def __init__(self, config: Any, client: Client, *, layer_type: Optional[str] = None) -> None:
        super().__init__()
        self.config = config
        self.layer_type = layer_type
        self._client = client
        # If the model has several parts, this is the configuration of the language model.
        self._source = rope_source(config.get_text_config() if hasattr(config, "get_text_config") else config)
        self._resolved: dict[tuple[Optional[str], Optional[int]], ResolveRopeResponse] = {}
        self._tables: dict[tuple[Optional[str], Optional[int]], tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: Optional[str] = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        layer_type = layer_type or self.layer_type
        rows = int(position_ids.max()) + 1 if position_ids.numel() else 1
        length = self._length(layer_type, rows)
        cos, sin = self._table(layer_type, length, rows, x.device)
        return cos[position_ids].to(x.dtype), sin[position_ids].to(x.dtype)

    def _resolve(self, layer_type: Optional[str], length: Optional[int]) -> ResolveRopeResponse:
        key = layer_type, length
        if key not in self._resolved:
            found = self._client.resolve(self._source, layer_type=layer_type, sequence_length=length)
            spec = found.spec or RopeSpec()
            if spec.axes is not None or spec.nope:
                raise invalid("config", "has several position axes, or none: this module is for one")
            self._resolved[key] = found
        return self._resolved[key]

    def _length(self, layer_type: Optional[str], rows: int) -> Optional[int]:
        """Returns the sequence length for a length-dependent scaling, or None for other scalings."""
        spec = self._resolve(layer_type, None).spec or RopeSpec()
        if spec.dynamic_ntk is not None:
            return max(rows, spec.dynamic_ntk.max_position_embeddings)
        if spec.longrope is not None:
            first = spec.longrope.original_max_position_embeddings
            return first if rows <= first else first + 1
        return None

    def _table(
        self, layer_type: Optional[str], length: Optional[int], rows: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        key = layer_type, length
        table = self._tables.get(key)
        if table is None or len(table[0]) < rows:
            count = max(_ROWS, 1 << (rows - 1).bit_length())
            spec = self._resolve(layer_type, length).spec
            source = RopeSource(spec=spec, sequence_length=length)
            # transformers writes every value twice, [cos | cos], for both pairings.
            table = self._client.build_table(rope=source, rows=count, layout="duplicated", dtype=torch.float32)
            if length is not None:  # a table of another length is useless now
                self._tables = {k: v for k, v in self._tables.items() if k[0] != layer_type}
        if table[0].device != device:
            table = table[0].to(device), table[1].to(device)
        self._tables[key] = table
        return table


def install(model: torch.nn.Module, client: Client) -> int:
    """Replaces every rotary module that has a `config` by a RotaryEmbedding.
    Returns the number of replaced modules."""
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RotaryEmbedding") and hasattr(child, "config"):
                setattr(module, name, RotaryEmbedding(child.config, client))
                count += 1
    return count
