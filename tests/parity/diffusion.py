"""Asks diffusers' transformers for their rotations, which towers.py records."""

import torch

from rounded import Functions, hexed, ordinal, rows_of

# Diffusion transformers: the modules of diffusers, the pipelines' ids [tokens,
# axes] for `text` tokens and a grid (time, height, width), and the cosines and
# sines of each pair. Most compute in float64 and round the table.


def ids_of(text, grid):
    """Returns the ids of text tokens, if these rotate, too, and then of each frame's patches, row
    by row."""
    rows = [list(ids) for ids in text]
    for t in range(grid[0]):
        for y in range(grid[1]):
            rows += [[t, y, x] for x in range(grid[2])]
    return torch.tensor(rows)


def flux(name, module, text=3, **more):
    def ask(config, grid):
        ids = ids_of([[0, 0, 0]] * text, grid)
        cos, sin = module(config.get("rope_theta", 10000),
                          config["axes_dims_rope"])(ids)
        return ids, cos[:, ::2], sin[:, ::2]
    return name, {"axes_dims_rope": [16, 56, 56], **more}, [1, 4, 6], text, ask


def flux2(module):
    def ask(config, grid):
        ids = torch.cat([
            torch.cartesian_prod(*map(torch.arange, (1, 1, 1, 3))),
            torch.cartesian_prod(*map(torch.arange, (1, *grid[1:], 1)))])
        cos, sin = module(config["rope_theta"], config["axes_dims_rope"])(ids)
        return ids, cos[:, ::2], sin[:, ::2]
    config = {"axes_dims_rope": [32] * 4, "rope_theta": 2000}
    return "Flux2Transformer2DModel", config, [1, 4, 6], 3, ask


def hidream(module):
    def ask(config, grid):
        ids = ids_of([], grid)
        table = module(10000, config["axes_dims_rope"])(ids[None].float())
        table = table.reshape(len(ids), -1, 2, 2)
        return ids, table[..., 0, 0], table[..., 1, 0]
    config = {"axes_dims_rope": [64, 32, 32]}
    return "HiDreamImageTransformer2DModel", config, [1, 4, 6], 0, ask


def wan(name, module):
    def ask(config, grid):
        cos, sin = module(config["attention_head_dim"], (1, 2, 2), 64)(
            torch.zeros(1, 1, grid[0], 2 * grid[1], 2 * grid[2]))
        return ids_of([], grid), cos[0, :, 0, ::2], sin[0, :, 0, ::2]
    config = {"attention_head_dim": 128}
    return name, config, [2, 4, 6], 0, ask


def hunyuan_image(module):
    def ask(config, grid):
        cos, sin = module((1, 1), config["rope_axes_dim"], config["rope_theta"])(
            torch.zeros(1, 1, *grid[1:]))
        return ids_of([], grid)[:, 1:], cos[:, ::2], sin[:, ::2]
    config = {"rope_axes_dim": [64, 64], "rope_theta": 256.0}
    return "HunyuanImageTransformer2DModel", config, [1, 4, 6], 0, ask


def hunyuan(name, module):
    def ask(config, grid):
        cos, sin = module(2, 1, config["rope_axes_dim"], config["rope_theta"])(
            torch.zeros(1, 1, grid[0], 2 * grid[1], 2 * grid[2]))
        return ids_of([], grid), cos[:, ::2], sin[:, ::2]
    config = {"rope_axes_dim": [16, 56, 56], "rope_theta": 256.0}
    return name, config, [2, 4, 6], 0, ask


def lumina(module):
    def ask(config, grid):
        rotary = module(10000, config["axes_dim_rope"], [64, 64, 64], 2)
        latents = torch.zeros(1, 1, 2 * grid[1], 2 * grid[2])
        mask = torch.ones(1, 3, dtype=torch.int64)
        table = rotary(latents, mask)[3][0]
        ids = ids_of([], grid) + torch.tensor([3, 0, 0])
        text = torch.tensor([[i, 0, 0] for i in range(3)])
        return torch.cat([text, ids]), table.real, table.imag
    config = {"axes_dim_rope": [32, 32, 32]}
    return "Lumina2Transformer2DModel", config, [1, 4, 6], 3, ask


def qwen_image(module):
    def ask(config, grid):
        rotary = module(10000, config["axes_dims_rope"], scale_rope=True)
        patches, text = rotary([tuple(grid)], torch.device("cpu"), 3)
        table = torch.cat([text, patches])
        half = max(grid[1:]) // 2
        ids = ids_of([], grid)
        ids -= torch.tensor([0, *(n - n // 2 for n in grid[1:])])
        first = torch.tensor([[half + i] * 3 for i in range(3)])
        return torch.cat([first, ids]), table.real, table.imag
    config = {"axes_dims_rope": [16, 56, 56]}
    return "QwenImageTransformer2DModel", config, [1, 4, 7], 3, ask


def diffusion():
    from diffusers.models.transformers import (
        transformer_bria, transformer_bria_fibo, transformer_chroma,
        transformer_flux, transformer_flux2, transformer_hidream_image,
        transformer_hunyuan_video, transformer_hunyuan_video15,
        transformer_hunyuanimage, transformer_longcat_image,
        transformer_lumina2, transformer_ovis_image, transformer_qwenimage,
        transformer_skyreels_v2, transformer_wan, transformer_wan_vace)

    found = []
    for name, config, grid, text, ask in (
            flux("FluxTransformer2DModel", transformer_flux.FluxPosEmbed),
            flux("ChromaTransformer2DModel", transformer_chroma.FluxPosEmbed),
            flux("BriaTransformer2DModel", transformer_bria.BriaEmbedND,
                 rope_theta=10000),
            flux("BriaFiboTransformer2DModel",
                 transformer_bria_fibo.BriaFiboEmbedND, rope_theta=10000),
            flux("OvisImageTransformer2DModel",
                 transformer_ovis_image.OvisImagePosEmbed, text=0),
            flux("LongCatImageTransformer2DModel",
                 transformer_longcat_image.LongCatImagePosEmbed, text=0),
            flux2(transformer_flux2.Flux2PosEmbed),
            hidream(transformer_hidream_image.HiDreamImageEmbedND),
            lumina(transformer_lumina2.Lumina2RotaryPosEmbed),
            qwen_image(transformer_qwenimage.QwenEmbedRope),
            hunyuan("HunyuanVideoTransformer3DModel",
                    transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed),
            hunyuan("HunyuanVideo15Transformer3DModel",
                    transformer_hunyuan_video15.HunyuanVideo15RotaryPosEmbed),
            hunyuan_image(transformer_hunyuanimage.HunyuanImageRotaryPosEmbed),
            wan("WanTransformer3DModel", transformer_wan.WanRotaryPosEmbed),
            wan("WanVACETransformer3DModel", transformer_wan_vace.WanRotaryPosEmbed),
            wan("SkyReelsV2Transformer3DModel",
                transformer_skyreels_v2.SkyReelsV2RotaryPosEmbed)):
        with Functions("rounded"):
            ids, cos, sin = ask(config, grid)
        _, own_cos, own_sin = ask(config, grid)
        rows = rows_of(len(ids))
        found.append({
            "class": name, "config": {"_class_name": name, **config},
            "grid": grid, "text_tokens": text, "rows": rows,
            "positions": ids.double().T.tolist(),
            "cos": hexed(cos[rows].numpy()), "sin": hexed(sin[rows].numpy()),
            "library_ulps": [
                (ordinal(a[rows].numpy()) - ordinal(b[rows].numpy())).tolist()
                for a, b in ((own_cos, cos), (own_sin, sin))],
        })
    return found
