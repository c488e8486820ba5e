"""The positions of towers, and the use of their tables."""

import torch
from transformers.vision_utils import get_vision_position_ids

# The functions up to sequence() return a tower's positions for a grid (time, height, width), as in the forward pass of
# its model: [tokens, axes].


def merged(config, grid):
    merge = getattr(config, "spatial_merge_size", 1)
    return get_vision_position_ids(torch.tensor([grid]), merge)


def row_major(config, grid):
    return get_vision_position_ids(torch.tensor([grid]), 1)


def merged_by_two(config, grid):
    """Returns the ids that VideoLLaMA 3 gets for each video: its processor passes the merge size 2."""
    return get_vision_position_ids(torch.tensor([grid]), 2)


def three_axes(config, grid):
    return get_vision_position_ids(
        torch.tensor([grid]), config.spatial_merge_size, include_temporal=True
    )


def columns_from_one(config, grid):
    return merged(config, grid).flip(-1) + 1


def class_then_rows_from_one(config, grid):
    ids = merged(config, grid) + 1
    return torch.cat([torch.zeros(1, 2, dtype=ids.dtype), ids])


def columns(config, grid):
    return row_major(config, grid).flip(-1)


def columns_in_windows(config, grid):
    return columns(config, grid) * (config.window_size / grid[2])


def sequence(config, grid):
    return torch.arange(grid[0] * grid[1] * grid[2])[:, None]


def by_tokens(function):
    """Rotates [tokens, heads, width] in the form [1, heads, tokens, width]."""

    def rotate(module, x, cos, sin):
        y = getattr(module, function)(
            x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin
        )[0]
        return y[0].transpose(0, 1)

    return rotate


def of_vision(module, x, cos, sin):
    return module.apply_rotary_pos_emb_vision(x, x, cos, sin)[0]


def unbatched(module, x, cos, sin):
    y = module.apply_rotary_pos_emb(
        x.transpose(0, 1), x.transpose(0, 1), cos, sin, unsqueeze_dim=0
    )[0]
    return y.transpose(0, 1)


def multidimensional(module, x, cos, sin):
    ids = torch.zeros(1, x.shape[0], 2)
    return module.apply_multidimensional_rope(x[None], cos, sin, ids)[0]


def whole_width(module, x, cos, sin):
    return module.apply_rotary_pos_emb(
        x[None], x[None], cos, sin, unsqueeze_dim=2
    )[0][0]
