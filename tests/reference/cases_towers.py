"""Vision towers: ResolveRope of their configurations, BuildPositions of their
grids."""

import json

from cases import bad, case

QWEN = {"model_type": "qwen2_vl_vision", "embed_dim": 1280, "num_heads": 16}
LLAMA4 = {"model_type": "llama4_vision_model", "hidden_size": 1408,
          "num_attention_heads": 16}
GEMMA4 = {"model_type": "gemma4_vision", "head_dim": 64, "rope_theta": 100}
MINIMAX = {"model_type": "minimax_m3_vl_vision", "hidden_size": 1280,
           "num_attention_heads": 16}
KIMI = {"model_type": "kimi_k25_vision", "hidden_size": 1152,
        "num_attention_heads": 16}
PIXTRAL = {"model_type": "pixtral", "head_dim": 64}
FLUX = {"_class_name": "FluxTransformer2DModel",
        "axes_dims_rope": [16, 56, 56]}
DINO = {"model_type": "dinov3_vit", "hidden_size": 384,
        "num_attention_heads": 6}


def _source(config, **more):
    return {"configJson": json.dumps(config), **more}


def towers():
    whole = {"model_type": "qwen2_vl", "hidden_size": 8192,
             "num_attention_heads": 64,
             "vision_config": {"embed_dim": 1280, "num_heads": 16}}

    def resolve(name, config, **more):
        return case(name, "ResolveRope", rope=_source(config, **more))

    return [
        resolve("Qwen2VisionTurnsByRowThenColumn", QWEN),
        resolve("Qwen2VisionIsAPartOfTheWholeModel", whole,
                part="MODEL_PART_VISION"),
        resolve("Llama4VisionTurnsByColumnThenRow", LLAMA4),
        resolve("Gemma4VisionSplitsEachAxis", GEMMA4),
        resolve("MiniMaxTurnsByTimeRowAndColumn", MINIMAX),
        resolve("KimiAlternatesColumnAndRow", KIMI),
        resolve("PixtralSharesOneLadder", PIXTRAL),
        resolve("DinoHasABaseOfAHundred", DINO),
        resolve("FluxTurnsByTimeRowAndColumn", FLUX),
    ]


def grids():
    def build(name, config, *sizes, **more):
        fields = ("time", "height", "width")
        return case(name, "BuildPositions", vision={
            "rope": _source(config),
            "grids": [dict(zip(fields[-len(size):], size)) for size in sizes],
            **more})

    return [
        build("VisionOfQwenIsInBlocks", QWEN, (4, 6)),
        build("VisionOfQwenRepeatsFrames", QWEN, (2, 2, 4), (4, 2)),
        build("VisionTakesAnotherMerge", QWEN, (2, 3), mergeSize=1),
        build("VisionOfMiniMaxCountsFrames", MINIMAX, (2, 2, 2)),
        build("VisionOfLlama4EndsWithItsClass", LLAMA4, (2, 3)),
        build("VisionOfGemma4IsColumnFirst", GEMMA4, (2, 3)),
        build("VisionOfPixtralIsInRows", PIXTRAL, (2, 3), (1, 2)),
        build("VisionOfDinoIsInRadians", DINO, (3, 4)),
        build("FluxBeginsWithText", FLUX, (2, 3), textTokens=3),
    ]


def errors():
    invalid = "FIELD_INVALID"
    llama = {"model_type": "llama", "hidden_size": 64,
             "num_attention_heads": 1}
    clip = {"model_type": "llava", "vision_config": {
        "model_type": "clip_vision_model"}}

    def resolve(name, reason, field, config, **more):
        return bad(name, "ResolveRope", reason, field,
                   rope=_source(config, **more))

    def build(name, reason, field, **vision):
        return bad(name, "BuildPositions", reason, field, vision=vision)

    return [
        resolve("RejectsAPartThatIsNotThere", invalid, "rope.part", llama,
                part="MODEL_PART_VISION"),
        resolve("RejectsTheTextOfATower", invalid, "rope.part", PIXTRAL,
                part="MODEL_PART_TEXT"),
        resolve("RejectsAPartWithoutRotation", "MODEL_CONFIG_INVALID",
                "rope.config_json", clip, part="MODEL_PART_VISION"),
        resolve("RejectsAnotherTypeOfATower", "MODEL_CONFIG_INVALID",
                "rope.config_json",
                {**QWEN, "rope_parameters": {"rope_type": "yarn"}}),
        build("RejectsVisionWithoutATower", "FIELD_REQUIRED", "vision.rope",
              grids=[{"height": 2, "width": 2}]),
        build("RejectsVisionOfALanguageModel", invalid,
              "vision.rope.config_json", rope=_source(llama),
              grids=[{"height": 2, "width": 2}]),
        build("RejectsVisionWithoutGrids", "FIELD_REQUIRED", "vision.grids",
              rope=_source(PIXTRAL)),
        build("RejectsTextOfATower", invalid, "vision.text_tokens",
              rope=_source(PIXTRAL), grids=[{"height": 1, "width": 1}],
              textTokens=1),
        build("RejectsPatchesThatFillNoBlocks", invalid,
              "vision.grids[0].width", rope=_source(QWEN),
              grids=[{"height": 2, "width": 3}]),
    ]


def groups():
    return {"resolve_rope_towers": towers(),
            "build_positions_vision": grids(),
            "towers_errors": errors()}
